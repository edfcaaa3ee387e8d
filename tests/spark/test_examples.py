"""The examples print what the files beside them say, and so does the docstring of `resurge.run`."""

import doctest
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from resurge.api import running
from resurge.runtime.driver.session import open_session

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """One Spark for all examples: `run` uses a session that is there, and leaves it."""
    spark = open_session("local[2]", "examples")
    yield
    spark.stop()


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_prints_what_stands_beside_it(example, capsys):
    """Generated input is always the same, so is the output."""
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out == example.with_suffix(".out").read_text()


def test_every_example_has_an_output():
    """An example without its output is not tested."""
    assert {path.stem for path in EXAMPLES.glob("*.out")} == {path.stem for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("function", [running.run, running.start])
def test_docstrings_that_start_spark_hold(function):
    """What the docstring shows is what happens."""
    (example,) = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs={})
    assert doctest.DocTestRunner().run(example).failed == 0
