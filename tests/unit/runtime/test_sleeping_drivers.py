"""A driver that was stopped while others took the job over, one after another, changes nothing when it is woken."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors import file_log
from resurge.connectors.contracts import Source
from resurge.connectors.files import files
from resurge.errors import ResurgeError, StaleGenerationError
from resurge.model.topology import Topology
from resurge.operators.aggregates import sum_
from resurge.protocols.checkpoint import CheckpointRecord
from resurge.runtime.driver.engine import Engine
from resurge.storage import checkpoint_store
from resurge.storage.durable import DurableStore
from resurge.storage.journal import CheckpointPublished, EpochPlanned, Journal
from tests.support.checkpoint_writing import writing
from tests.support.engines import Bench, asked, assert_same_output, finish, started
from tests.support.scripted import scripted

EPOCHS = 9
SLEEPER_STEPS = 2
ROWS = [[pl.DataFrame({"who": ["a", "b"], "amount": [epoch, 2 * epoch]})] for epoch in range(EPOCHS)]
OPERATIONS = ("create", "replace", "read", "exists", "names", "remove")


@pytest.fixture(autouse=True, scope="module")
def quick_disk() -> Iterator[None]:
    """No power is lost here; the drivers write some thousand files, and checkpoints when they are taken, so that all is counted."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda descriptor: None)
        writing(patched, late=False)
        yield


@pytest.fixture(params=["script", "files"], scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """A source without a log of its own, and one whose log has numbers too; every entry of that frees those before it."""
    if request.param == "script":
        yield scripted(ROWS)
        return
    folder = tmp_path_factory.mktemp("input")
    for epoch, (frame,) in enumerate(ROWS):
        frame.write_parquet(folder / f"{epoch}.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_log, "SNAPSHOT_INTERVAL", 1)
        yield files(folder / "*.parquet", max_files_per_epoch=1)


def topology(bench: Bench, source: Source) -> Topology:
    job = TopologyBuilder("sleeping", key_groups=1)
    totals = job.source("rows", source).aggregate("totals", key="who", total=sum_("amount"))
    return asked(job, bench.sink, {"totals": totals})


def driver(folder: Path, source: Source) -> tuple[Bench, Engine]:
    """Every epoch makes a checkpoint, and only one is kept: numbers are freed as early as can be."""
    bench = Bench(folder)
    return bench, bench.engine(topology(bench, source), checkpoint_interval=1, checkpoints_kept=1, slots=1)


def interrupted(engine: Engine, at: int, others: Callable[[], None]) -> list[str]:
    """Stop a driver right after its n-th use of the durable store, let others run, and wake it."""
    passed: list[str] = []

    def wrap(name: str) -> None:
        original = getattr(engine.store, name)

        def wrapped(*arguments: object) -> object:
            passed.append(f"{name} {arguments[0]}")
            mine = len(passed) == at
            result = original(*arguments)
            if mine:
                others()
            return result

        setattr(engine.store, name, wrapped)

    for name in OPERATIONS:
        wrap(name)
    return passed


def run_sleeper(engine: Engine) -> BaseException | None:
    """Two epochs and an orderly stop; how it ended."""
    try:
        engine.start()
        for _ in range(SLEEPER_STEPS):
            engine.step()
        engine.close()
    except ResurgeError as error:
        with contextlib.suppress(ResurgeError):
            engine.close(str(error))
        return error
    return None


def assert_whole(folder: Path) -> None:
    """Every checkpoint that the journal names can be restored."""
    store = DurableStore(str(folder / "job"))
    for record in Journal(store).read():
        if isinstance(record, CheckpointPublished):
            named = CheckpointRecord(record.epoch, record.manifest, record.checksum)
            checkpoint_store.verify(store, checkpoint_store.read_manifest(store, named))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, source: Source) -> dict[str, pl.DataFrame]:
    bench, engine = driver(tmp_path_factory.mktemp("undisturbed"), source)
    finish(engine)
    return bench.shown()


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory, source: Source) -> int:
    """How often an undisturbed driver uses the store."""
    _, engine = driver(tmp_path_factory.mktemp("counted"), source)
    passed = interrupted(engine, 0, lambda: None)
    assert run_sleeper(engine) is None
    return len(passed)


def test_a_driver_stopped_at_any_stage_and_woken_after_two_takeovers_changes_nothing(
    stages: int, tmp_path: Path, undisturbed: dict[str, pl.DataFrame], source: Source
) -> None:
    """Stopped at every use of the store, woken when a third driver is at work; that one goes on, and a fourth could too."""
    assert stages > 20
    for at in range(1, stages + 1):
        folder = tmp_path / str(at)
        first, sleeper = driver(folder, source)
        second, other = driver(folder, source)
        third, last = driver(folder, source)

        def two_takeovers(other: Engine = other, last: Engine = last) -> None:
            with started(other):
                for _ in range(2):
                    other.step()
            last.start()
            for _ in range(2):
                last.step()

        passed = interrupted(sleeper, at, two_takeovers)
        ended = run_sleeper(sleeper)
        if len(passed) < at:
            # How often sources are asked differs a little: this driver had ended before it was to be stopped.
            assert ended is None and at > stages - 5
            break
        what = f"after {at}: {passed[at - 1]}: {ended!r}"
        is_new = sleeper.journal.generation > 2
        if is_new:
            # It had not begun when the others ran, so it is the newest driver: the third must stop.
            assert ended is None, what
            with pytest.raises(StaleGenerationError):
                last.step()
            with contextlib.suppress(ResurgeError):
                last.close("superseded")
        else:
            last.run(until_idle=True, drain=True)
            last.close()
        assert_whole(folder)
        fourth, finisher = driver(folder, source)
        finish(finisher)
        assert_whole(folder)
        both = Bench(folder)
        for bench in (first, second, third, fourth):
            for key, frame in bench.sink._frames.items():
                assert both.sink._frames.setdefault(key, frame).equals(frame), f"{what}: {key} was shown with other rows"
        assert_same_output(both.shown(), undisturbed, what)


def planned(epoch: int) -> EpochPlanned:
    return EpochPlanned(epoch, {}, {}, 0.0)


def opened(folder: Path) -> Journal:
    journal = Journal(DurableStore(str(folder)))
    journal.read()
    return journal


def test_a_driver_that_slept_before_it_took_over_does_not_get_a_number_that_was_trimmed(tmp_path: Path) -> None:
    """It read an empty journal; meanwhile the first records came and went."""
    for records in range(3):
        folder = tmp_path / str(records)
        owner = opened(folder)
        if records:
            owner.take_over()
        for epoch in range(1, records):
            owner.append(planned(epoch))
        sleeper = opened(folder)
        if not records:
            owner.take_over()
        for epoch in range(records or 1, 6):
            owner.append(planned(epoch))
        owner.publish(CheckpointRecord(5, "manifest", 0), first_epoch=6)
        assert sleeper.take_over() == 2
        assert sleeper.next_number > owner.next_number
        with pytest.raises(StaleGenerationError):
            owner.append(planned(6))


def test_what_a_driver_wrote_under_a_trimmed_number_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between looking and writing, it writes a record; it stops, and the record is neither read nor kept for ever."""
    sleeper = opened(tmp_path)
    sleeper.take_over()
    for generation in (2, 3):
        owner = opened(tmp_path)
        assert owner.take_over() == generation
        owner.append(planned(generation))
        owner.publish(CheckpointRecord(generation, "manifest", 0), first_epoch=generation + 1)
        owner.store.flush()
    looks = [sleeper._follows, lambda number: True]
    monkeypatch.setattr(sleeper, "_follows", lambda number: looks.pop()(number))  # noqa: PLW0108 (not the same)
    with pytest.raises(StaleGenerationError):
        sleeper.append(planned(77))
    assert (tmp_path / "journal" / f"{1:012d}.json").exists()
    successor = opened(tmp_path)
    assert planned(77) not in successor.records()
    assert successor.take_over() == 4
    successor.publish(CheckpointRecord(9, "manifest", 0), first_epoch=10)
    successor.store.flush()
    assert not (tmp_path / "journal" / f"{1:012d}.json").exists()
