"""The example with real servers prints what the files beside it say."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "connected"
EXAMPLE, SECOND_TERMINAL = FOLDER / "orders.py", FOLDER / "second_terminal.py"
RESURGE = Path(sys.executable).with_name("resurge")


@pytest.fixture
def environment(kafka_servers, postgres, unique) -> dict[str, str]:
    """Where the servers are, a name of its own for topics and tables, and the `resurge` command."""
    path = f"{RESURGE.parent}{os.pathsep}{os.environ['PATH']}"
    servers = {"RESURGE_KAFKA": kafka_servers, "RESURGE_POSTGRES": postgres, "RESURGE_EXAMPLE": f"sales_{unique[-6:]}"}
    return os.environ | servers | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


def output(environment: dict[str, str], *command: object) -> str:
    """What a command prints."""
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_example_prints_what_stands_beside_it(environment):
    """The input is always the same, so is what the servers have in the end."""
    assert output(environment, sys.executable, EXAMPLE) == EXAMPLE.with_suffix(".out").read_text()


def test_second_terminal_sees_a_node_die_and_no_order_missing(environment, tmp_path):
    """A node of a real cluster is killed and replaced while the job runs; the table has every minute once."""
    cluster = ("--folder", tmp_path / "cluster")
    master = output(environment, RESURGE, "cluster", "start", "--nodes", 2, *cluster).strip()
    try:
        output(environment, sys.executable, EXAMPLE, "fill")
        command = [RESURGE, "run", EXAMPLE, "--master", master, "--checkpoint", tmp_path / "orders"]
        with (tmp_path / "first.log").open("w") as log:
            first = subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=log)
        try:
            seen = output(environment, sys.executable, SECOND_TERMINAL, tmp_path / "orders", tmp_path / "cluster")
        finally:
            first.send_signal(signal.SIGINT)
            ended = first.wait(timeout=120)
        assert seen == SECOND_TERMINAL.with_suffix(".out").read_text()
        assert ended == 0, (tmp_path / "first.log").read_text()[-2000:]
    finally:
        output(environment, RESURGE, "cluster", "stop", *cluster)
