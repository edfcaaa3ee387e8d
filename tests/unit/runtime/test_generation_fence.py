"""Two drivers on one job: the second takes over, the first stops without writing."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count as count_from
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.errors import ResurgeError, StaleGenerationError
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, sum_
from resurge.runtime.driver.engine import Engine
from resurge.storage.durable import DurableStore
from resurge.storage.journal import CheckpointPublished, Journal, Record
from tests.support.engines import Bench, asked, assert_same_output, finish, started
from tests.support.scripted import scripted

EPOCHS = 4
START = datetime(2024, 1, 1)
SCHEMA = {"at": pl.Datetime("us"), "who": pl.String, "amount": pl.Int64}


def rows(epoch: int) -> list[pl.DataFrame]:
    made = [(START + timedelta(seconds=epoch * 4 + i), "abc"[i % 3], epoch + i) for i in range(6)]
    return [pl.DataFrame(made[:3], schema=SCHEMA, orient="row"), pl.DataFrame(made[3:], schema=SCHEMA, orient="row")]


def topology(bench: Bench) -> Topology:
    job = TopologyBuilder("fenced", key_groups=2)
    source = job.source("rows", scripted([rows(epoch) for epoch in range(EPOCHS)]), event_time="at")
    streams = {
        "all": source,
        "windows": source.window("windows", "5s", key="who", emit="final", n=count()),
        "totals": source.aggregate("totals", key="who", total=sum_("amount")),
    }
    return asked(job, bench.sink, streams)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    bench = Bench(tmp_path_factory.mktemp("undisturbed"))
    finish(bench.engine(topology(bench)))
    return bench.shown()


def store_files(bench: Bench) -> dict[str, bytes]:
    """Everything in the durable store."""
    return {str(path.relative_to(bench.store)): path.read_bytes() for path in bench.store.rglob("*") if path.is_file()}


@pytest.mark.parametrize("steps", range(EPOCHS + 1))
def test_a_superseded_driver_stops_at_its_next_step_without_writing(
    steps: int, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """After however many epochs the second driver starts, it finishes the job and the first changes nothing any more."""
    first, second = Bench(tmp_path), Bench(tmp_path)
    with started(first.engine(topology(first))) as old:
        for _ in range(steps):
            assert old.step()
        finish(second.engine(topology(second)))
        before, shown = store_files(second), first.shown()
        with pytest.raises(StaleGenerationError, match=r"another driver has taken over.*this driver stops without writing"):
            old.step(drain=True)
        assert store_files(second) == before
        assert_same_output(first.shown(), shown)
    assert store_files(second) == before, "nor does it write when it is closed"
    assert_shown_once(first, second, undisturbed)


def assert_shown_once(first: Bench, second: Bench, wanted: dict[str, pl.DataFrame]) -> None:
    """Both drivers' output together is the undisturbed one; where both showed an epoch, they showed the same."""
    both = Bench(first.folder)
    for bench in (first, second):
        for key, frame in bench.sink._frames.items():
            known = both.sink._frames.setdefault(key, frame)
            assert known.sort(pl.all()).equals(frame.sort(pl.all())), f"{key} was shown with other rows"
    assert_same_output(both.shown(), wanted)


def test_closing_a_superseded_driver_publishes_no_checkpoint(tmp_path: Path) -> None:
    """An orderly stop would checkpoint; the fence holds there too."""
    first, second = Bench(tmp_path), Bench(tmp_path)
    old = first.engine(topology(first), checkpoint_interval=100)
    old.start()
    assert old.step()
    finish(second.engine(topology(second)))
    journal = {name: content for name, content in store_files(second).items() if name.startswith("journal/")}
    with pytest.raises(StaleGenerationError):
        old.close()
    assert {name: content for name, content in store_files(second).items() if name.startswith("journal/")} == journal


def interrupt(engine: Engine, at: int, moment: str, other: Callable[[], None]) -> list[Record]:
    """Run something right before or right after a driver's n-th journal write; that write, once it was reached."""
    passed = 0
    reached: list[Record] = []
    append = engine.journal.append

    def interrupted(record: Record) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            reached.append(record)
            if moment == "before":
                other()
        append(record)
        if passed == at and moment == "after":
            other()

    engine.journal.append = interrupted  # type: ignore[method-assign]
    return reached


def race(folder: Path, at: int, moment: str) -> tuple[Bench, Bench, Record | None, BaseException | None]:
    """Let a second driver finish the job at one journal write of the first: that write, and how the first ended.

    Checkpoints are written in the background, and none is taken while another is being written: a driver that is slower
    makes fewer journal writes. A race at a write that was not reached has no second driver, and no write.
    """
    first, second = Bench(folder), Bench(folder)
    old = first.engine(topology(first))
    reached = interrupt(old, at, moment, lambda: finish(second.engine(topology(second))))
    error: BaseException | None = None
    try:
        finish(old)
    except ResurgeError as raised:
        error = raised
    return first, second, reached[0] if reached else None, error


@pytest.mark.parametrize("moment", ["before", "after"])
def test_whatever_journal_write_the_second_driver_comes_between_the_output_is_the_same(
    moment: str, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """The race at every journal write: the first driver loses it, and has shown nothing that the second does not."""
    for at in count_from(1):
        first, second, record, error = race(tmp_path / f"{moment}-{at}", at, moment)
        assert_shown_once(first, second, undisturbed)
        if record is None:
            break
        if not (moment == "after" and isinstance(record, CheckpointPublished)):
            assert isinstance(error, StaleGenerationError), (
                f"{moment} write {at} ({record}) the first driver ended with {error!r}"
            )
    assert at > 2 * EPOCHS


def test_a_driver_superseded_right_after_its_checkpoint_says_so(tmp_path: Path) -> None:
    """It must not blame a missing file that the other driver was right to remove; after its very last write it just ends."""
    ends: list[BaseException | None] = []
    for at in count_from(1):
        _, _, record, error = race(tmp_path / str(at), at, "after")
        if record is None:
            break
        if isinstance(record, CheckpointPublished):
            ends.append(error)
    assert ends
    # Which checkpoint is the last write depends on how fast the ones before were written.
    assert all(error is None or isinstance(error, StaleGenerationError) for error in ends), ends


def test_every_driver_gets_a_generation_of_its_own(tmp_path: Path) -> None:
    """Of several drivers that take over one after another, only the last may write."""
    store = DurableStore(str(tmp_path))
    journals = [Journal(store) for _ in range(4)]
    for journal in journals:
        journal.read()
    assert [journal.take_over() for journal in journals] == [1, 2, 3, 4]
    for journal in journals[:-1]:
        with pytest.raises(StaleGenerationError):
            journal.append(journal.records()[0])
    journals[-1].append(journals[-1].records()[-1])


def test_a_driver_that_starts_while_another_trims_reads_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that goes between listing and reading was not needed."""
    bench = Bench(tmp_path)
    finish(bench.engine(topology(bench), checkpoint_interval=100), drain=False)
    store = DurableStore(str(bench.store))
    listed, times = store.names, []

    def with_one_gone(folder: str) -> list[str]:
        times.append(folder)
        return sorted([*listed(folder), f"{folder}/{99:012d}.json"]) if len(times) == 1 else listed(folder)

    monkeypatch.setattr(store, "names", with_one_gone)
    assert Journal(store).read() == Journal(DurableStore(str(bench.store))).read()
    assert len(times) == 2
