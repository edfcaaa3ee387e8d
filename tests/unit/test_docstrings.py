"""The examples in docstrings run, and show what happens."""

import doctest
import importlib
from pathlib import Path

import pytest

import resurge

SOURCE = Path(resurge.__path__[0])
NEEDS_SPARK = {"resurge.api.running": ("run", "start")}
MODULES = sorted(
    ".".join(("resurge", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    """Of every module; those that start Spark are run with the tests on Spark."""
    module = importlib.import_module(name)
    skipped = {f"{name}.{function}" for function in NEEDS_SPARK.get(name, ())}
    examples = [found for found in doctest.DocTestFinder().find(module) if found.name not in skipped]
    results = [doctest.DocTestRunner().run(example) for example in examples]
    assert sum(result.attempted for result in results) > 0
    assert not any(result.failed for result in results)
