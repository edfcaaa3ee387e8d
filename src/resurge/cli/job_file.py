"""The user's file: loaded as a module, its functions made to travel by value, its topology found."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from resurge.api.builder import TopologyBuilder
from resurge.errors import ResurgeError, TopologyError
from resurge.model.topology import Topology

MODULE = "resurge_job"
DEFAULT_NAME = "topology"
OPTIONS_NAME = "options"


def load_topology(target: str) -> Topology:
    """The topology that FILE.py or FILE.py:name describes."""
    return load_job(target)[0]


def load_job(target: str) -> tuple[Topology, dict[str, Any]]:
    """The topology that FILE.py or FILE.py:name describes, and the options of a run that the file carries."""
    path, name = split_target(target)
    module = _load(path)
    travel_by_value(path)
    found = vars(module).get(name)
    options = vars(module).get(OPTIONS_NAME, {})
    if not isinstance(options, dict):
        raise TopologyError(
            f"{path}: {OPTIONS_NAME} is of type {type(options).__name__}; expected a dict such as {{'interval': '500ms'}}"
        )
    if isinstance(found, TopologyBuilder):
        return _built(found, path), options
    if isinstance(found, Topology):
        return found, options
    raise TopologyError(_not_found(module, path, name))


def split_target(target: str) -> tuple[Path, str]:
    """File and name; a file whose own name has a colon is found too.

    >>> split_target("jobs/trending.py:busy")
    (PosixPath('jobs/trending.py'), 'busy')
    """
    path, colon, name = target.rpartition(":")
    if not colon or Path(target).exists() or not name.isidentifier():
        return Path(target), DEFAULT_NAME
    return Path(path), name


def travel_by_value(path: Path) -> None:
    """Executors do not have the file, nor what it imports from its folder: send all functions from there by value."""
    from pyspark import cloudpickle

    folder = path.resolve().parent
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if isinstance(origin, str) and Path(origin).resolve().parent == folder and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise TopologyError(
            f"{path} {what}; expected a Python file that describes a topology, as in: resurge run trending.py --checkpoint out/trending"
        )
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise TopologyError(f"{path} is not a Python file; expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = error.filename if error.filename and not _is_same(error.filename, path) else path
        raise TopologyError(f"{where}, line {error.lineno}: {error.msg}: correct it and run again") from error
    except ResurgeError as error:
        raise type(error)(f"{_place(error, path)}: {error}") from error
    except SystemExit as error:
        raise TopologyError(
            f"{_place(error, path)}: the file ends Python while it is loaded; expected it only to describe a topology: put what it "
            "runs below if __name__ == '__main__'"
        ) from error
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise TopologyError(f"{_place(error, path)}: {type(error).__name__}: {first_line}: correct it and run again") from error
    return module


def _built(builder: TopologyBuilder, path: Path) -> Topology:
    try:
        return builder.build()
    except ResurgeError as error:
        raise type(error)(f"{path}: {error}") from error


def _place(error: BaseException, path: Path) -> str:
    """The last line of the file that was being run."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _is_same(frame.filename, path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _is_same(filename: str, path: Path) -> bool:
    return Path(filename).resolve() == path.resolve()


def _not_found(module: ModuleType, path: Path, name: str) -> str:
    topologies = [known for known, value in vars(module).items() if isinstance(value, Topology | TopologyBuilder)]
    if name in vars(module):
        problem = f"{path}: {name} is of type {type(vars(module)[name]).__name__}; expected a Topology or a TopologyBuilder"
    else:
        problem = f"{path} has nothing called {name!r}; expected a Topology or a TopologyBuilder of that name"
    if not topologies:
        return f"{problem}: it describes none, add one"
    return f"{problem}: it has {', '.join(topologies)}, as in: resurge run {path}:{topologies[0]}"
