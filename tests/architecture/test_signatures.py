"""Functions take few arguments: what belongs together is a value."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "resurge"
MOST_PARAMETERS = 6

# One parameter per option of a command, or per keyword that a user writes: a value would only hide them.
COMMANDS = SOURCE / "cli"
FOR_USERS = {
    "api/builder.py": {"join", "top_k", "process", "process_table"},
    "api/running.py": {"run", "start"},
    "connectors/files.py": {"files"},
    "connectors/kafka/sink.py": {"__init__"},
    "connectors/kafka/source.py": {"kafka"},
    "connectors/posts.py": {"posts"},
    "runtime/embedded_cluster/cluster.py": {"__init__"},
}


def crowded(module: Path) -> set[str]:
    """The functions of a module that take more than six arguments."""
    functions = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.FunctionDef)]
    return {function.name for function in functions if len(parameters(function)) > MOST_PARAMETERS}


def parameters(function: ast.FunctionDef) -> list[str]:
    """What a caller gives."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def test_what_belongs_together_is_a_value():
    """A function with more than six arguments gets a value for those that belong together."""
    found = {
        str(module.relative_to(SOURCE)): crowded(module) for module in SOURCE.rglob("*.py") if COMMANDS not in module.parents
    }
    too_many = {name: functions - FOR_USERS.get(name, set()) for name, functions in found.items()}
    assert {name: functions for name, functions in too_many.items() if functions} == {}


@pytest.mark.parametrize(("name", "functions"), FOR_USERS.items())
def test_exceptions_are_still_needed(name: str, functions: set[str]):
    """A function that has become smaller is no exception any more."""
    assert functions <= crowded(SOURCE / name)
