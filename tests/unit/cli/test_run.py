"""Running with a view, stopping by signals, and what is said at the end; the engine runs inline, without Spark."""

import io
import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from resurge import TopologyBuilder, count
from resurge.cli import run as run_module
from resurge.cli.live_view import PlainView, TerminalView, drawn, open_view, plain_line
from resurge.cli.main import app, register
from resurge.cli.run import Limits, again_command, conclude, drive, telemetry_path
from resurge.errors import StorageError
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.telemetry import metrics
from resurge.telemetry.events import EpochFinished, Warned
from resurge.telemetry.log import TelemetryLog, read_events
from resurge.testing.inline_runner import InlineRunner
from tests.support.checkpoint_writing import writing
from tests.support.scripted import scripted
from tests.support.telemetry import START_S, epoch, started, steady_run

BEGIN = datetime(2024, 1, 1)


def rows(number: int) -> pl.DataFrame:
    """A few rows of one epoch."""
    return pl.DataFrame({"at": [BEGIN + timedelta(seconds=number)] * 3, "who": ["a", "b", "a"]})


def engine(tmp_path, epochs: int = 6) -> Engine:
    """A job of this many epochs."""
    job = TopologyBuilder("letters", key_groups=2)
    source = job.source("letters", scripted([[rows(number)] for number in range(epochs)]), event_time="at")
    source.aggregate("totals", key="who", n=count()).query(priority=3)
    options = RunOptions(str(tmp_path / "job"), interval_s=0, checkpoint_interval=4, local_root=str(tmp_path / "local"))
    return Engine(job.build(), InlineRunner(2), options, TelemetryLog(telemetry_path(str(tmp_path / "job"))))


def console(*, terminal: bool = False) -> Console:
    """A console that remembers."""
    return Console(file=io.StringIO(), force_terminal=terminal, width=120)


def printed(of: Console) -> str:
    """What was printed."""
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def told(tmp_path) -> tuple[int, int | None]:
    """The last epoch and the last checkpoint, by telemetry."""
    now = metrics.snapshot(list(read_events(tmp_path / "job" / "telemetry.jsonl")), START_S)
    return now.epoch, now.checkpoint_epoch


def signal_at(job: Engine, number: int, *signals: signal.Signals) -> None:
    """Send signals to this process when an epoch is committed."""

    def send(event: object) -> None:
        if isinstance(event, EpochFinished) and event.epoch == number:
            for each in signals:
                os.kill(os.getpid(), each)

    job.telemetry.listeners.append(send)


def test_plain_view_prints_one_line_per_epoch(tmp_path, monkeypatch):
    """Where output is no terminal, every epoch is a line of a log."""
    writing(monkeypatch, late=False)
    out = console()
    assert drive(engine(tmp_path), Limits(until_idle=True), open_view(out)) is False
    lines = printed(out).splitlines()
    assert lines[0] == "letters on inline, generation 1"
    assert [line.split(" | ")[0] for line in lines[1:]] == [f"epoch {number}" for number in range(1, 7)]
    assert "3 rows in" in lines[1]
    assert "| checkpoint 4 (" in lines[-1]


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_epoch_and_checkpoints(tmp_path, which):
    """Ctrl-C is an orderly end: the next run has nothing to run again."""
    job = engine(tmp_path)
    signal_at(job, 2, which)
    before = signal.getsignal(which)
    assert drive(job, Limits(), PlainView(console())) is True
    assert signal.getsignal(which) == before
    assert told(tmp_path) == (2, 2)

    out = console()
    drive(engine(tmp_path), Limits(until_idle=True), PlainView(out))
    assert "resumed after epoch 2 from the checkpoint of epoch 2, generation 2" in printed(out)
    assert "run again" not in printed(out)
    assert "epoch 6" in printed(out)


def test_a_second_signal_stops_at_once_and_the_epochs_are_run_again(tmp_path):
    """Nothing waits for the checkpoint, and nothing is lost."""
    job = engine(tmp_path)
    signal_at(job, 2, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        drive(job, Limits(), PlainView(console()))
    assert told(tmp_path) == (2, None)

    out = console()
    drive(engine(tmp_path), Limits(until_idle=True), PlainView(out))
    assert "epochs 1 to 2 run again" in printed(out)
    assert "epoch 6" in printed(out)


def test_epochs_limit_counts_new_epochs(tmp_path):
    """Two runs of two epochs are four epochs."""
    drive(engine(tmp_path), Limits(epochs=2), PlainView(console()))
    drive(engine(tmp_path), Limits(epochs=2), PlainView(console()))
    assert told(tmp_path) == (4, 4)


def test_end_says_how_to_resume_and_where_things_are(tmp_path):
    """Telemetry, report, and the command that goes on."""
    job = engine(tmp_path)
    drive(job, Limits(epochs=2), PlainView(console()))
    out = console()
    conclude(job.telemetry, out, stopped=True, again="resurge run job.py --checkpoint x", report=tmp_path / "report.html")
    assert "stopped after epoch 2; resume with: resurge run job.py --checkpoint x" in printed(out)
    assert f"telemetry: {tmp_path}/job/telemetry.jsonl" in printed(out)
    assert f"report: {tmp_path}/report.html" in printed(out)
    assert "totals" in printed(out)
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_telemetry_of_all_runs_is_in_one_log(tmp_path):
    """A resumed run appends."""
    for _ in range(2):
        drive(engine(tmp_path), Limits(epochs=1), PlainView(console()))
    log = tmp_path / "job" / "telemetry.jsonl"
    assert [epoch.epoch for epoch in metrics.finished_epochs(read_events(log))] == [1, 2]


def test_telemetry_of_a_remote_job_is_a_temporary_file():
    """Appending is not something that object stores do."""
    assert telemetry_path("memory://jobs/letters").name == "telemetry.jsonl"
    assert telemetry_path("memory://jobs/letters").parent.is_dir()


def test_place_that_cannot_be_written_is_refused(tmp_path):
    """One line, before Spark is started."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="expected a folder for the job"):
        telemetry_path(str(tmp_path / "file" / "job"))


def test_terminal_view_shows_how_the_job_stands():
    """Epoch, rows/s, latency, lag, state, age of the checkpoint, and the queries."""
    out = console(terminal=True)
    out.print(drawn(metrics.snapshot(steady_run(7), START_S + 8.1)))
    for expected in (
        "epoch",
        "7",
        "rows/s",
        "100",
        "latency p50",
        "600 ms",
        "lag",
        "state",
        "4 kB",
        "5 (3 s ago)",
        "busy",
        "priority",
    ):
        assert expected in printed(out)


def test_terminal_view_says_that_it_is_stopping():
    """The second Ctrl-C is explained before it is needed."""
    out = console(terminal=True)
    out.print(drawn(metrics.snapshot([], START_S), is_stopping=True))
    assert "Ctrl-C again to stop at once" in printed(out)


def test_terminal_view_prints_warnings_above_itself(tmp_path):
    """A warning stays on the screen when the table moves on."""
    out = console(terminal=True)
    with TerminalView(out) as view:
        view.on_event(started())
        view.on_event(Warned(START_S, "the checkpoint [of] epoch 3 is torn"))
        view.on_event(epoch(1))
    assert "warning: the checkpoint [of] epoch 3 is torn" in printed(out)


def test_lines_name_late_and_malformed_rows():
    """Rows that did not count are counted."""
    late = EpochFinished(START_S, 1, 5, 0.1, START_S, {}, {}, 0, 0, {"window": 2}, 1, 50, 10, {})
    line = plain_line(late, metrics.snapshot([started(), late], START_S))
    assert line is not None
    assert "2 late | 1 malformed" in line
    assert "lag 50 (at most 10 per epoch)" in line


def test_place_and_limit_of_the_local_store_reach_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is made absolute, because executors have working folders of their own."""
    seen: list[RunOptions] = []
    monkeypatch.setattr(run_module, "_run_on_spark", lambda topology, where, *rest: bool(seen.append(where.options)))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.py"
    file.write_text(
        "import resurge\n"
        "topology = resurge.TopologyBuilder('j')\n"
        "posts = topology.source('posts', resurge.posts(total=10), event_time='time')\n"
        "posts.window('w', '10s', key='user', n=resurge.count()).query()\n"
    )
    arguments = ["run", str(file), "--checkpoint", str(tmp_path / "job"), "--local-store", "fast", "--local-store-limit", "64m"]
    register()
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert (seen[0].local_root, seen[0].local_limit_bytes) == (str(tmp_path / "fast"), 64 * 1024**2)


def test_the_command_to_resume_has_every_option_that_was_chosen():
    """As words of a shell; options that are as by default are left out, and so is the file that others came from."""
    defaults = {"target": None, "master": "local[*]", "checkpoint": None, "interval": "1s", "max_rows": None, "drain": False}
    chosen = {**defaults, "target": "my job.py", "checkpoint": "out", "interval": "100ms", "max_rows": 5, "drain": True}
    wanted = "resurge run 'my job.py' --checkpoint out --interval 100ms --max-rows 5 --drain"
    assert again_command(chosen, {**defaults, "config": None}) == wanted
