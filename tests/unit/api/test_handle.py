"""A job in the background: look at it, wait for it, stop it; the engine runs without Spark here."""

import doctest
import threading

import polars as pl
import pytest

from resurge import MemorySink, TopologyBuilder, count, posts
from resurge.api import running
from resurge.errors import JobError, ResurgeError
from tests.support.inline_sessions import run_inline

PATIENCE_S = 60


@pytest.fixture
def sessions(monkeypatch) -> list[str]:
    """Run in this process; has an entry for each session that was stopped."""
    return run_inline(monkeypatch)


def job(sink: MemorySink, total: int | None = None, *, fails_at: int | None = None) -> TopologyBuilder:
    """Counts posts by user; may fail at some epoch."""
    seen = []

    def checked(frame: pl.DataFrame) -> pl.DataFrame:
        seen.append(frame.height)
        if fails_at is not None and len(seen) > fails_at:
            raise ValueError("broken <b>")
        return frame

    made = TopologyBuilder("people", key_groups=2)
    source = made.source("posts", posts(total=total, posts_per_epoch=10), event_time="time").filter("all", checked)
    source.aggregate("active", key="user", n=count()).query(priority=4, sink=sink)
    return made


def test_job_runs_while_the_caller_goes_on_and_stops_when_asked(sessions):
    """Epochs are waited for, figures are there meanwhile, and after the stop the session is gone."""
    sink = MemorySink()
    started = running.start(job(sink), interval=0)
    first = started.await_epochs(3, PATIENCE_S)
    assert first.epoch >= 3
    assert first.state == "running"
    assert first.rows >= 30
    assert started.is_running
    last = started.stop(PATIENCE_S)
    assert last.state == "finished"
    assert last.checkpoint_epoch == last.epoch
    assert sessions == ["resurge people"]
    assert not started.is_running
    assert sink.table()["n"].max() >= 1


def test_job_that_ends_by_itself_is_finished(sessions):
    """Waiting for more epochs than there are ends with the job."""
    with running.start(job(MemorySink(), 40), interval=0, until_idle=True) as started:
        assert started.await_epochs(1000, PATIENCE_S).rows == 40
        assert started.wait(PATIENCE_S).state == "finished"


def test_job_that_fails_raises_wherever_it_is_asked(sessions):
    """The error is the user's own, with the operator named; the status shows it too."""
    started = running.start(job(MemorySink(), fails_at=2), interval=0)
    with pytest.raises(ResurgeError, match="broken"):
        started.await_epochs(50, PATIENCE_S)
    with pytest.raises(ResurgeError, match="broken"):
        started.stop(PATIENCE_S)
    assert started.status().state == "failed"
    assert "broken" in str(started.status())
    assert "broken &lt;b&gt;" in started.status()._repr_html_()
    assert sessions == ["resurge people"]


def test_patience_may_end_before_the_epochs_come(sessions):
    """The error says how many are missing; the job goes on."""
    with running.start(job(MemorySink()), interval=30) as started:
        started.await_epochs(1, PATIENCE_S)
        with pytest.raises(JobError, match=r"waited 0\.05 s for 5 epochs; 5 are missing"):
            started.await_epochs(5, 0.05)
        assert started.is_running


def test_tables_and_plots_render_in_a_notebook(sessions):
    """Every view has HTML of its own, and tables are data frames."""
    with running.start(job(MemorySink()), interval=0) as started:
        started.await_epochs(5, PATIENCE_S)
        assert started.queries().select("query", "priority", "live").rows() == [("active", 4, True)]
        assert started.epochs().height >= 5
        assert started.epochs()["rows"].to_list()[:3] == [10, 10, 10]
        drawn = started.plot()
        assert "Throughput" in drawn.svg
        assert "<svg" in drawn._repr_html_()
        page = started._repr_html_()
        assert "people" in page
        assert "active" in page
        assert "people" in repr(started)


def test_example_of_the_docstring_runs(sessions):
    """What the reference shows is what happens."""
    (example,) = doctest.DocTestFinder(recurse=False).find(running.start, globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_session_is_released_when_the_engine_cannot_be_made(sessions, monkeypatch):
    """A start that is refused leaves nothing behind."""
    before = threading.active_count()
    with pytest.raises(ResurgeError):
        running.start("not a topology", interval=0)
    with pytest.raises(JobError, match="strategy"):
        running.start(job(MemorySink()), strategy="nothing")
    assert threading.active_count() == before
