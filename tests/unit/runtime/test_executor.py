"""A Python worker finds out which executor it belongs to, on every cluster manager."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = "from resurge.runtime.worker.executor import executor_id; print(executor_id())"
DAEMON = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}])"
JVM = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DAEMON!r}], cwd=sys.argv[1])"


def asked(folder: Path, *arguments: str, **environment: str) -> str:
    """What a worker says below a daemon below a process that was started like an executor."""
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_EXECUTOR_ID"}
    line = [sys.executable, "-c", JVM, str(folder), *arguments]
    return subprocess.run(line, env=kept | environment, capture_output=True, text=True, check=True).stdout.strip()


def test_an_executor_of_yarn_is_known_by_the_arguments_of_its_process(tmp_path: Path) -> None:
    """YARN sets no variable, and its work folder is that of a container."""
    folder = tmp_path / "application_1_0001" / "container_1_0001_01_000008"
    folder.mkdir(parents=True)
    backend = ["YarnCoarseGrainedExecutorBackend", "--driver-url", "spark://driver", "--executor-id", "7", "--hostname", "h"]
    assert asked(folder, *backend) == "7"


def test_the_arguments_are_believed_before_a_variable_that_somebody_set(tmp_path: Path) -> None:
    """The variable may come from the user's own settings."""
    assert asked(tmp_path, "--executor-id", "7", SPARK_EXECUTOR_ID="8") == "7"


@pytest.mark.parametrize(("variable", "wanted"), [({"SPARK_EXECUTOR_ID": "3"}, "3"), ({}, "12")])
def test_without_arguments_there_are_the_variable_and_the_work_folder(
    tmp_path: Path, variable: dict[str, str], wanted: str
) -> None:
    """Where processes do not show their arguments."""
    folder = tmp_path / "app-20260101-0001" / "12"
    folder.mkdir(parents=True)
    assert asked(folder, **variable) == wanted


def test_a_process_below_no_executor_has_none(tmp_path: Path) -> None:
    """Such as one of a local session."""
    assert asked(tmp_path) == "None"
