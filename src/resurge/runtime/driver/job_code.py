"""A job's code as bytes for the executors; what cannot be sent is named, with the operator that uses it."""

import functools
import types
from collections.abc import Iterator, Mapping
from typing import Any

from resurge.errors import TopologyError
from resurge.runtime.worker.level import JobCode

_MOST_STEPS = 200


def packed(code: JobCode) -> bytes:
    """The code, pickled; functions of the user's own travel by value."""
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps(code))
    except Exception as error:
        raise _refusal(code, error) from error


def _refusal(code: JobCode, error: Exception) -> TopologyError:
    parts: list[tuple[str, Any]] = [
        *((f"operator {name!r}", operator) for name, operator in code.program.topology.operators.items()),
        *((f"the reader of source {name!r}", reader) for name, reader in code.readers.items()),
        *((f"the sink of query {name!r}", sink) for name, sink in code.sinks.items()),
    ]
    owner, part = next(((name, part) for name, part in parts if not _can_be_sent(part)), ("the job", code))
    path, value = _culprit(part)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return TopologyError(
        f"{owner} cannot be sent to the nodes: {path or 'it'} is a {kind}, which cannot be pickled "
        f"({' '.join(str(error).split())[:200]}); expected functions that use plain data: open files, connections and locks inside "
        "the function, where it runs"
    )


def _can_be_sent(value: Any) -> bool:
    from pyspark import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _culprit(value: Any) -> tuple[str, Any]:
    """The innermost value that cannot be pickled, and how one gets to it."""
    path, seen = "", {id(value)}
    for _ in range(_MOST_STEPS):
        inner = next(
            ((name, part) for name, part in _parts(value) if id(part) not in seen and not _can_be_sent(part)),
            None,
        )
        if inner is None:
            break
        path, value = f"{path}.{inner[0]}" if path else inner[0], inner[1]
        seen.add(id(value))
    return path, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value refers to, by name: what its pickle would contain."""
    if isinstance(value, types.FunctionType):
        yield from _used_by(value)
    elif isinstance(value, types.MethodType):
        yield from (("self", value.__self__), (value.__func__.__name__, value.__func__))
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, Mapping):
        yield from ((str(name), part) for name, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif hasattr(value, "__dict__"):
        yield from ((name, part) for name, part in vars(value).items() if not name.startswith("__") or callable(part))


def _used_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """A function's closure, its defaults, and the globals that it names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    yield from ((f"default {index}", value) for index, value in enumerate(function.__defaults__ or ()))
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
