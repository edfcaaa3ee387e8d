"""The doctor finds what is wrong, names it and says what to do; healthy machines pass."""

import json
import stat

import fsspec
import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner

from resurge.cli import main
from resurge.doctor import machine, stores
from resurge.doctor.executors import PACKAGES, master_finding, versions_findings
from resurge.doctor.findings import Verdict
from resurge.runtime.worker.fitness import own_fitness


def fake_java(folder, version: str) -> dict[str, str]:
    """An environment whose java is a script that tells a version."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\n")
    command.chmod(command.stat().st_mode | stat.S_IEXEC)
    return {"JAVA_HOME": str(folder)}


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("17.0.9", Verdict.FINE), ("21", Verdict.FINE), ("11.0.2", Verdict.PROBLEM), ("1.8.0_392", Verdict.PROBLEM)],
)
def test_java_must_be_new_enough(tmp_path, version, verdict):
    """Also where it tells its version in the old way."""
    assert machine.java_finding(fake_java(tmp_path, version)).verdict is verdict


def test_java_that_is_missing_is_named(tmp_path):
    """With the command that installs it."""
    found = machine.java_finding({"PATH": str(tmp_path)})
    assert found.verdict is Verdict.PROBLEM
    assert "openjdk-17" in found.advice


@pytest.mark.parametrize(
    ("version", "verdict"), [("4.3.0", "fine"), ("4.9.1", "fine"), ("3.5.1", "problem"), ("5.0.0", "problem"), (None, "problem")]
)
def test_spark_must_be_of_a_known_version(version, verdict):
    """Older and newer ones are refused with the command to install one that fits."""
    assert machine.spark_finding(version).verdict.value == verdict


def test_old_python_and_missing_packages_are_problems():
    """Each with what to install."""
    assert machine.python_finding((3, 10, 2)).verdict is Verdict.PROBLEM
    missing = machine.packages_finding({"polars": "2.0", "msgspec": None})
    assert missing.advice == "pip install msgspec"
    assert "resurge[metrics]" in machine.extras_finding({"dashboard": "1", "metrics": None}).advice


def test_folder_that_cannot_be_written_is_a_problem(tmp_path):
    """Before a job finds out at its first epoch."""
    assert machine.space_finding("x", tmp_path / "nowhere").verdict is Verdict.PROBLEM
    assert machine.space_finding("x", tmp_path).verdict is not Verdict.PROBLEM
    assert list(tmp_path.iterdir()) == []


def test_local_store_passes_and_nothing_is_left_behind(tmp_path):
    """Every capability is tried, and the folder is as before."""
    found = list(stores.store_findings(str(tmp_path / "jobs")))
    assert {finding.check for finding in found} >= {"store, write", "store, create once", "store, read", "store, delete", "clock"}
    assert all(finding.verdict is not Verdict.PROBLEM for finding in found)
    assert list(tmp_path.iterdir()) == []


class Forgetful(MemoryFileSystem):
    """A store that overwrites what exists, as object stores without conditional writes do."""

    protocol = "forgetful"
    store = {}  # noqa: RUF012 - as the parent

    def exists(self, path, **kwargs):
        return False

    def _open(self, path, mode="rb", **kwargs):
        return super()._open(path, mode.replace("x", "w"), **kwargs)


def test_store_that_creates_what_exists_is_a_problem():
    """Two drivers could both think that they own the job."""
    fsspec.register_implementation("forgetful", Forgetful, clobber=True)
    found = {finding.check: finding for finding in stores.store_findings("forgetful://jobs")}
    assert found["store, create once"].verdict is Verdict.PROBLEM
    assert "conditional writes" in found["store, create once"].advice


def test_store_that_cannot_be_opened_or_written_is_a_problem(tmp_path):
    """An unknown kind, and a folder that is a file."""
    (unknown,) = stores.store_findings("nothing://bucket/job")
    assert unknown.verdict is Verdict.PROBLEM
    (tmp_path / "file").write_text("")
    (refused,) = stores.store_findings(str(tmp_path / "file" / "job"))
    assert refused.check == "store, write"
    assert refused.verdict is Verdict.PROBLEM


def test_executors_that_differ_are_named():
    """Another Polars is a problem; a missing Resurge is not, because the driver sends it."""
    mine = dict.fromkeys(PACKAGES, "1") | {"fitness": own_fitness()}
    (agreed,) = versions_findings(mine, {"a": mine, "b": mine})
    assert agreed.verdict is Verdict.FINE
    others = {
        "a": mine | {"numpy": "0.9"},
        "b": mine | {"fitness": None},
        "b2": mine | {"fitness": None, "polars": "0.9"},
        "c": mine | {"fitness": msgspec.structs.replace(own_fitness(), code="0123456789")},
    }
    found = list(versions_findings(mine, others))
    assert [(finding.check, finding.verdict) for finding in found] == [
        ("versions on a", Verdict.PROBLEM),
        ("versions on b", Verdict.NOTE),
        ("versions on b2", Verdict.PROBLEM),
        ("versions on c", Verdict.PROBLEM),
    ]
    assert found[0].found == "numpy is 0.9, expected 1"
    assert found[3].found.startswith("Resurge code is 0123456789, expected ")


def test_master_that_cannot_be_reached_is_a_problem():
    """Without waiting for Spark's retries."""
    found = master_finding("spark://127.0.0.1:1")
    assert found is not None
    assert found.verdict is Verdict.PROBLEM
    assert master_finding("local[2]") is None


def test_command_prints_json_and_fails_on_problems(tmp_path, monkeypatch):
    """For scripts: every finding, and the exit code."""
    main.register()
    healthy = CliRunner().invoke(main.app, ["doctor", "--no-spark", "--json", "--checkpoint", str(tmp_path / "jobs")])
    assert healthy.exit_code == 0, healthy.output
    assert {finding["verdict"] for finding in json.loads(healthy.output)} <= {"fine", "note"}
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ill = CliRunner().invoke(main.app, ["doctor", "--no-spark"])
    assert ill.exit_code == 1
    assert "1 in the way of a job" in ill.output
