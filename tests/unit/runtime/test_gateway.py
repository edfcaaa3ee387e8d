"""A Spark session that the user has started: its Python must be one that has Resurge."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from resurge.errors import EngineError, JobError
from resurge.runtime.driver import gateway
from resurge.runtime.driver.gateway import SparkLog, java_options, pointing_to_log, refuse_other_python


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


def test_an_error_of_spark_points_to_the_log_which_then_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary log is removed, with what was rolled, unless somebody was told to read it."""
    logs = [SparkLog(tmp_path / name, is_kept=False) for name in ("first.log", "second.log")]
    for log in logs:
        log.path.write_text("WARN")
        log.path.with_name(log.path.name + ".1").write_text("WARN")
    monkeypatch.setattr(gateway, "_logs", logs)
    with pytest.raises(EngineError, match=rf"lost; what Spark said is in {logs[1].path}$"), pointing_to_log():
        raise EngineError("lost")
    gateway.remove_temporary_logs()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["second.log", "second.log.1"]


def test_an_error_of_spark_points_nowhere_where_the_user_has_started_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages are where the user has them."""
    monkeypatch.setattr(gateway, "_logs", [])
    with pytest.raises(EngineError, match=r"^lost$"), pointing_to_log():
        raise EngineError("lost")
