"""Looking at a job from outside: only the durable store, no Spark, no job file, nothing written."""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from resurge import TopologyBuilder, count, sum_
from resurge.cli.main import app, register
from resurge.errors import StorageError
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.telemetry.events import LoadMeasured, MoveEnded, NodeLoad, NodeNamed
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner
from tests.support.checkpoint_writing import writing
from tests.support.scripted import scripted

BEGIN = datetime(2024, 1, 1)
if not app.registered_commands:
    register()


@pytest.fixture
def job(tmp_path, monkeypatch) -> Path:
    """Five epochs of a job that checkpoints every second one; the last checkpoint is made when it ends."""
    writing(monkeypatch, late=False)
    frames = [
        pl.DataFrame({"at": [BEGIN + timedelta(seconds=n)] * 3, "who": ["a", "b", f"n{n}"], "amount": [n, 10, 1]})
        for n in range(5)
    ]
    topology = TopologyBuilder("letters", key_groups=3)
    source = topology.source("letters", scripted([[frame] for frame in frames]), event_time="at")
    source.aggregate("totals", key="who", n=count(), total=sum_("amount")).query()
    source.window("busy", "10s", key="who", n=count()).query()
    source.session("visits", "3s", key="who", n=count()).query()
    options = RunOptions(str(tmp_path / "job"), interval_s=0, checkpoint_interval=2, local_root=str(tmp_path / "local"))
    run_until_done(Engine(topology.build(), InlineRunner(2), options), until_idle=True)
    return tmp_path / "job"


def resurge(*arguments: object) -> tuple[int, str]:
    """Exit code and output of a command; an error that the entry point would print is the output."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, StorageError):
        return 1, str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def snapshot_of(folder: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_status_says_where_copies_lay_at_the_checkpoint(job, tmp_path):
    """How many on which node, and how old the oldest was; nothing where there are none."""
    frames = [pl.DataFrame({"at": [BEGIN], "who": ["a"], "amount": [n]}) for n in range(6)]
    topology = TopologyBuilder("letters", key_groups=3)
    source = topology.source("letters", scripted([[frame] for frame in frames]), event_time="at")
    source.aggregate("totals", key="who", n=count()).query()
    runner = InlineRunner(nodes={f"n{index}": Member(1) for index in range(2)})
    folder = tmp_path / "copied"
    options = RunOptions(str(folder), interval_s=0, checkpoint_interval=2, local_root=str(tmp_path / "local"), copies=1)
    run_until_done(Engine(topology.build(), runner, options), until_idle=True)
    kept = json.loads(resurge("status", folder, "--json")[1])["copies"]
    assert sorted(kept) == ["totals/0", "totals/1", "totals/2"]
    lines = [line.split() for line in resurge("status", folder)[1].splitlines()]
    [told] = [" ".join(words[1:]) for words in lines if words[:1] == ["copies"]]
    assert told.startswith("3 of 3 partitions: ") and " on n0" in told and "the oldest " in told
    assert not any(line.startswith("copies") for line in resurge("status", job)[1].splitlines())


def test_status_says_how_far_a_job_is(job):
    """Epochs, generation, offsets and state sizes."""
    code, output = resurge("status", job, "--json")
    found = json.loads(output)
    assert code == 0
    assert (found["topology"], found["generation"], found["key_groups"]) == ("letters", 1, 3)
    assert (found["planned_epoch"], found["committed_epoch"], found["checkpoint_epoch"]) == (5, 5, 5)
    assert found["offsets"] == {"letters": {"epoch": 5}}
    assert found["state"]["totals"]["partitions"] == 3
    assert found["state"]["totals"]["rows"] >= 7
    assert found["state"]["totals"]["bytes"] > 0
    assert 0 <= found["checkpoint_age_s"] < 600
    assert found["checkpoints"] is None


def test_status_is_readable(job):
    """The same as a table."""
    code, output = resurge("status", job, "--verify")
    assert code == 0
    for expected in (
        "letters",
        "epoch 5",
        "read of letters",
        "totals",
        "busy",
        "checkpoint of epoch 5: whole",
        "checkpoint of epoch 4: whole",
    ):
        assert expected in output


def test_looking_changes_nothing(job):
    """Safe beside a running job."""
    before = snapshot_of(job)
    resurge("status", job, "--verify")
    resurge("state", job, "totals")
    assert snapshot_of(job) == before


def test_verify_names_a_torn_file(job):
    """Exit code 1, and the file."""
    segment = sorted((job / "checkpoints" / "data").iterdir())[-1]
    os.truncate(segment, segment.stat().st_size // 3)
    code, output = resurge("status", job, "--verify", "--json")
    problems = json.loads(output)["checkpoints"]
    assert code == 1
    assert segment.name in problems["5"]


def test_status_falls_back_to_the_checkpoint_that_can_be_read(job):
    """As a restart would, and says so."""
    newest = sorted((job / "checkpoints").glob("*.json"))[-1]
    newest.write_bytes(b"{}")
    code, output = resurge("status", job, "--json")
    found = json.loads(output)
    assert (code, found["checkpoint_epoch"]) == (0, 4)
    assert newest.name in found["problems"][0]


@pytest.mark.parametrize("command", [("status",), ("state", "totals")])
def test_a_place_without_a_job_is_refused(tmp_path, command):
    """One line that says what was expected."""
    code, output = resurge(command[0], tmp_path / "nothing", *command[1:])
    assert code == 1
    assert "there is no job at" in output
    assert not (tmp_path / "nothing").exists()


def test_state_is_a_table(job):
    """All keys of all partitions, each once, newest value."""
    code, output = resurge("state", job, "totals", "--json")
    found = json.loads(output)
    (table,) = found["tables"].values()
    values = {row["who"]: (row["count()"], row["sum(amount)"]) for row in table["data"]}
    assert (code, found["epoch"], table["rows"]) == (0, 5, 7)
    assert values["a"] == (5, 10)
    assert values["b"] == (5, 50)
    assert values["n3"] == (1, 1)


def test_times_in_state_are_shown_as_times(job):
    """Also those inside a list of sessions; operators keep them as microseconds."""
    _, windows = resurge("state", job, "busy", "--key", "a")
    assert "2024-01-01 00:00:00" in windows
    _, output = resurge("state", job, "visits", "--table", "sessions", "--key", "a", "--json")
    [row] = json.loads(output)["tables"]["sessions"]["data"]
    assert [(session["__first"], session["__last"]) for session in row["__sessions"]] == [
        ("2024-01-01T00:00:00", "2024-01-01T00:00:04")
    ]


def test_state_of_one_key(job):
    """By the first key column, or by any column."""
    for key in ("b", "who=b"):
        _, output = resurge("state", job, "totals", "--key", key, "--json")
        (table,) = json.loads(output)["tables"].values()
        assert [row["who"] for row in table["data"]] == ["b"]


def test_state_of_a_key_that_is_not_there_is_empty(job):
    """No row is not an error."""
    code, output = resurge("state", job, "busy", "--key", "nobody")
    assert (code, "0 rows" in output) == (0, True)


def test_limit_says_how_many_rows_there_are(job):
    """A cut table says that it is cut."""
    _, output = resurge("state", job, "totals", "--limit", 2)
    assert "7 rows, the first 2 shown" in output


def test_unknown_operator_lists_those_there_are(job):
    """Exit code 1 and one line."""
    code, output = resurge("state", job, "nobody")
    assert code == 1
    assert "expected a stateful operator: busy, totals" in output


def test_unknown_table_lists_those_there_are(job):
    """The same for tables."""
    code, output = resurge("state", job, "busy", "--table", "left")
    assert code == 1
    assert "expected one of: windows" in output


def test_torn_state_is_found_when_it_is_read(job):
    """Never a wrong table."""
    for segment in (job / "checkpoints" / "data").iterdir():
        segment.write_bytes(bytes(byte ^ 0xFF for byte in segment.read_bytes()))
    code, output = resurge("state", job, "totals")
    assert code == 1
    assert "does not fit its checksum" in output


def test_status_shows_where_partitions_lay_and_the_last_moves(job):
    """From the telemetry beside the job; without any, nothing is said of nodes."""
    code, told = resurge("status", job, "--json")
    assert code == 0 and json.loads(told)["nodes"] == {} and json.loads(told)["moves"] == []
    assert "utilisation" not in resurge("status", job)[1]
    with TelemetryLog(job / "telemetry.jsonl") as log:
        log.write(NodeNamed(1.0, "0", "node-1"))
        log.write(LoadMeasured(1.0, 1, {}, {"0": NodeLoad(0.4, 0.8, {"totals": 2}), "1": NodeLoad(0.0, 0.0, {})}))
        log.write(MoveEnded(2.0, "r1", 1, 0.5, 0.02, 1_000))
    found = json.loads(resurge("status", job, "--json")[1])
    assert found["nodes"] == {
        "node-1": {"utilisation": 0.5, "partitions": {"totals": 2}},
        "1": {"utilisation": None, "partitions": {}},
    }
    assert found["moves"] == [{"at_s": 2.0, "moved": 1, "took_s": 0.5, "pause_s": 0.02, "shipped_bytes": 1_000, "failure": ""}]
    shown = resurge("status", job)[1]
    assert "node-1" in shown and "50%" in shown and "drains" in shown and "1 partition moved in 500 ms, paused for 20 ms" in shown
