"""A Spark session that the user has started: its Python must be one that has Resurge."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from resurge.errors import JobError
from resurge.runtime.driver.gateway import java_options, refuse_other_python


@dataclass(frozen=True)
class Context:
    """What is looked at of a Spark context."""

    pythonExec: str
    master: str = "local[2]"


def test_a_session_whose_python_has_no_resurge_is_refused_with_a_hint(tmp_path: Path) -> None:
    """PYSPARK_PYTHON was not set, so that tasks would run with another Python."""
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    other.chmod(0o755)
    with pytest.raises(JobError, match=rf"would run tasks with {other}.*expected {sys.executable}.*PYSPARK_PYTHON"):
        refuse_other_python(Context(str(other)))
    with pytest.raises(JobError, match="PYSPARK_PYTHON"):
        refuse_other_python(Context("no-such-python"))


def test_a_session_whose_python_has_resurge_is_used(tmp_path: Path) -> None:
    """The same Python, another name for it, or a cluster, whose nodes are checked when they join."""
    linked = tmp_path / "python3"
    linked.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    linked.chmod(0o755)
    for context in (Context(sys.executable), Context(str(linked)), Context("python3", "spark://host:7077")):
        refuse_other_python(context)


def test_java_options_are_added_to_those_there_are() -> None:
    """Also to none; a path may have spaces."""
    assert java_options({}, "-Xmn1g") == "-Xmn1g"
    assert java_options({"log": "a b"}, "") == '"-Dlog=a b"'
