"""Everything that can be wrong around a job: each time a clear error, nothing lost, and the job goes on when it is fixed."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import JobReference
from resurge.connectors.files import files
from resurge.connectors.sinks import MemorySink, ParquetSink
from resurge.errors import (
    BadRowError,
    CorruptFileError,
    IncompatibleJobError,
    JobError,
    SinkError,
    SourceError,
    StorageError,
    TopologyError,
)
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, sum_
from resurge.operators.keyed_state import value_of
from resurge.runtime.driver.engine import run_until_done
from resurge.runtime.driver.runner import Member
from resurge.storage.durable import Faults
from resurge.storage.stored_job import open_job
from resurge.testing.inline_runner import InlineRunner
from tests.support.checkpoint_writing import writing
from tests.support.engines import Bench, asked, assert_same_output, finish, started
from tests.support.scripted import ScriptedReader, ScriptedSource, scripted

START = datetime(2024, 1, 1)
SCHEMA = {"at": pl.Datetime("us"), "who": pl.String, "amount": pl.Int64}
EPOCHS = 6


def frame(epoch: int, keys: str = "abc", rows: int = 6) -> pl.DataFrame:
    made = [(START + timedelta(seconds=epoch * 4 + i), keys[i % len(keys)], epoch + i) for i in range(rows)]
    return pl.DataFrame(made, schema=SCHEMA, orient="row")


def script(epochs: int = EPOCHS) -> list[list[pl.DataFrame]]:
    return [[frame(epoch), frame(epoch, "bcd")] for epoch in range(epochs)]


def identity(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


def topology(
    sink: MemorySink, source: ScriptedSource | None = None, function: Callable[[pl.DataFrame], pl.DataFrame] = identity, **changes
) -> Topology:
    """A map, a window, running totals and an operator of the user's own; the keywords change one thing each."""
    job = TopologyBuilder(changes.get("name", "job"), key_groups=changes.get("key_groups", 2))
    rows = job.source("rows", source or scripted(script()), event_time="at").map("mapped", function)
    totals = {"total": sum_("amount"), **changes.get("more_totals", {})}
    field = changes.get("state", value_of(pl.Int64))
    streams = {
        "windows": rows.window("windows", changes.get("size", "5s"), key="who", emit="final", n=count()),
        "totals": rows.aggregate(changes.get("totals", "totals"), key="who", **totals),
        "seen": rows.process(
            "seen", changes.get("handler", count_rows), key="who", schema={"who": pl.String, "n": pl.Int64}, state={"n": field}
        ),
    }
    return asked(job, sink, streams)


def count_rows(key, rows, state, timers):
    state["n"] = (state["n"] or 0) + rows.height
    return [{"who": key[0], "n": state["n"]}]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    bench = Bench(tmp_path_factory.mktemp("undisturbed"))
    finish(bench.engine(topology(bench.sink)))
    return bench.shown()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A job whose checkpoints are written when they are taken, so that it is known which there are."""
    writing(monkeypatch, late=False)
    return Bench(tmp_path)


# Malformed rows


def csv_job(bench: Bench, bad_rows: str) -> Topology:
    job = TopologyBuilder("job", key_groups=2)
    source = files(bench.folder / "in" / "*.csv", schema=SCHEMA, max_files_per_epoch=1)
    rows = job.source("rows", source, event_time="at", bad_rows=bad_rows)
    streams = {"totals": rows.aggregate("totals", key="who", n=count(), total=sum_("amount"))}
    if bad_rows == "route":
        streams["bad"] = rows.bad_rows("bad")
    return asked(job, bench.sink, streams)


GOOD = "at,who,amount\n2024-01-01 00:00:01,a,1\n2024-01-01 00:00:02,b,2\n"
WITH_BAD = "at,who,amount\n2024-01-01 00:00:03,a,3\n2024-01-01 00:00:04,b,many\n2024-01-01 00:00:05,c\n,a,4\n"
MENDED = "at,who,amount\n2024-01-01 00:00:03,a,3\n2024-01-01 00:00:04,b,4\n2024-01-01 00:00:05,c,5\n2024-01-01 00:00:06,a,4\n"


def write_csv(folder: Path, *contents: str) -> None:
    (folder / "in").mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(contents):
        path = folder / "in" / f"{number}.csv"
        path.write_text(content)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def test_a_malformed_row_fails_the_job_with_file_line_and_row_named(bench: Bench) -> None:
    """The epoch is not committed; the rows before it are there."""
    write_csv(bench.folder, GOOD, WITH_BAD)
    with pytest.raises(BadRowError) as caught:
        finish(bench.engine(csv_job(bench, "fail")))
    message = str(caught.value)
    assert f"{bench.folder}/in/1.csv:3" in message and "2024-01-01 00:00:04,b,many" in message
    assert "column 'amount' is Int64, got 'many'" in message
    assert "bad_rows='route'" in message
    assert bench.shown()["totals"].rows() == [(1, "a", 1, 1), (1, "b", 1, 2)]
    with pytest.raises(BadRowError, match="many"):
        finish(bench.engine(csv_job(bench, "fail")))
    assert bench.shown()["totals"].height == 2, "a second try shows nothing more"


def test_a_job_that_failed_on_a_malformed_row_goes_on_when_the_row_is_fixed_in_place(bench: Bench, tmp_path: Path) -> None:
    """A fixed file of the same length is read again, and the output is that of a job that never failed."""
    fixed = "at,who,amount\n2024-01-01 00:00:03,a,3\n2024-01-01 00:00:04,b,0004\n2024-01-01 00:00:05,c,7\n"
    broken = fixed.replace("0004", "many")
    write_csv(bench.folder, GOOD, broken)
    with pytest.raises(BadRowError):
        finish(bench.engine(csv_job(bench, "fail")))
    write_csv(bench.folder, GOOD, fixed)
    finish(bench.engine(csv_job(bench, "fail")))
    other = Bench(tmp_path / "other")
    write_csv(other.folder, GOOD, fixed)
    finish(other.engine(csv_job(other, "fail")))
    assert_same_output(bench.shown(), other.shown())


def test_malformed_rows_can_be_routed_to_a_side_output(bench: Bench) -> None:
    """Good rows are used, bad ones come out with their place, their text and what is wrong; none is lost."""
    write_csv(bench.folder, GOOD, WITH_BAD)
    finish(bench.engine(csv_job(bench, "route")))
    shown = bench.shown()
    assert shown["totals"].rows() == [(1, "a", 1, 1), (1, "b", 1, 2), (2, "a", 2, 4)]
    bad = {(epoch, Path(place).name, row): error for epoch, place, row, error in shown["bad"].rows()}
    assert bad[2, "1.csv:3", "2024-01-01 00:00:04,b,many"] == "column 'amount' is Int64, got 'many'"
    assert bad[2, "1.csv:4", "2024-01-01 00:00:05,c"] == "expected 3 fields, got 2"
    assert "no event time in 'at'" in bad.values() and len(bad) == 3
    assert sum(event.bad_rows for event in bench.events if hasattr(event, "bad_rows")) == 3


def test_a_row_without_event_time_fails_the_job_with_the_row_named(bench: Bench) -> None:
    """A row that no window could take is malformed, also where the file could be read."""
    write_csv(bench.folder, "at,who,amount\n,zoe,4\n")
    with pytest.raises(
        BadRowError, match=r"1 rows have no event time in 'at', the first being .*zoe.*leave them out .*, or route"
    ):
        finish(bench.engine(csv_job(bench, "fail")))


# A source that raises


class BrokenReader(ScriptedReader):
    """Reads until something breaks: `at` says in which call and epoch, until a file says that it is fixed."""

    def __init__(self, epochs, broken: str, fixed: Path) -> None:
        super().__init__(epochs)
        self.broken, self.fixed = broken, fixed

    def _break(self, call: str, epoch: int) -> None:
        if call == self.broken and epoch == 3 and not self.fixed.exists():
            raise ConnectionError("the broker is away")

    def latest_offset(self, start, limit):
        self._break("latest_offset", start["epoch"])
        return super().latest_offset(start, limit)

    def partitions(self, start, end):
        self._break("partitions", start["epoch"])
        return super().partitions(start, end)

    def read(self, partition):
        batches = super().read(partition)
        yield next(batches)
        self._break("read", partition[0])
        yield from batches


class BrokenSource(ScriptedSource):
    """A scripted source with a reader that breaks."""

    def breaking(self, call: str, fixed: Path) -> "BrokenSource":
        object.__setattr__(self, "trouble", (call, fixed))
        return self

    def reader(self, log):
        return BrokenReader(self.epochs, *self.trouble)  # type: ignore[attr-defined]


def broken_source(call: str, fixed: Path) -> BrokenSource:
    made = scripted(script())
    return BrokenSource(made.epochs, made.columns).breaking(call, fixed)


@pytest.mark.parametrize("call", ["latest_offset", "partitions", "read"])
def test_a_source_that_raises_midway_loses_nothing(call: str, bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """The epoch is not committed; when the source is fixed, the next run goes on with the same output."""
    fixed = bench.folder / "fixed"
    with pytest.raises(SourceError, match=r"ConnectionError: the broker is away.*run"):
        finish(bench.engine(topology(bench.sink, broken_source(call, fixed))))
    assert max(rows["epoch"].max() for rows in bench.shown().values()) == 3
    with pytest.raises(SourceError, match="the broker is away"):
        finish(bench.engine(topology(bench.sink, broken_source(call, fixed))))
    fixed.touch()
    finish(bench.engine(topology(bench.sink, broken_source(call, fixed))))
    assert_same_output(bench.shown(), undisturbed)


def test_an_engine_goes_on_by_itself_once_the_source_is_fixed(bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """A caller that catches the error may just call step again."""
    fixed = bench.folder / "fixed"
    with started(bench.engine(topology(bench.sink, broken_source("read", fixed)))) as engine:
        with pytest.raises(SourceError):
            engine.run(until_idle=True)
        with pytest.raises(SourceError):
            engine.step()
        fixed.touch()
        engine.run(until_idle=True, drain=True)
    assert_same_output(bench.shown(), undisturbed)


# Functions of the user's that fail


def failing_at(epoch_start: datetime, how: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    def function(rows: pl.DataFrame) -> pl.DataFrame:
        return how(rows) if rows.height and rows["at"].min() >= epoch_start else rows

    return function


def raising(rows: pl.DataFrame) -> pl.DataFrame:
    raise ZeroDivisionError("division by zero")


FUNCTIONS = {
    "raises": (raising, "operator 'mapped' failed in epoch 3: ZeroDivisionError: division by zero"),
    "drops a column": (lambda rows: rows.drop("amount"), "operator 'mapped' made columns .*expected .*'amount': Int64"),
    "changes a type": (
        lambda rows: rows.with_columns(pl.col("amount").cast(pl.String)),
        "made columns .*; expected .*same columns",
    ),
    "reorders columns": (lambda rows: rows.select("who", "at", "amount"), "operator 'mapped' made columns"),
    "returns nothing": (
        lambda rows: None,
        "map 'mapped' returned NoneType; expected a polars.DataFrame.*operator 'mapped', epoch 3",
    ),
}


@pytest.mark.parametrize("case", sorted(FUNCTIONS))
def test_a_function_that_fails_is_named_with_its_epoch(case: str, bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """The epochs before are shown; with the function fixed the job goes on with the same output."""
    how, message = FUNCTIONS[case]
    broken = topology(bench.sink, function=failing_at(START + timedelta(seconds=8), how))
    with pytest.raises(JobError, match=message):
        finish(bench.engine(broken))
    assert bench.shown()["totals"]["epoch"].max() == 2
    finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), undisturbed)


def handler_of(made: Callable[[tuple], object]) -> Callable[..., object]:
    def handler(key, rows, state, timers):
        return count_rows(key, rows, state, timers) if rows["at"].min() < START + timedelta(seconds=8) else made(key)

    return handler


def raise_for(key):
    raise KeyError("no such thing")


HANDLERS = {
    "raises": (raise_for, "on_rows of keyed process 'seen' failed for key .*KeyError: 'no such thing'"),
    "unknown column": (lambda key: [{"other": 1}], "keyed process 'seen' emitted .*expected a dict with columns among who, n"),
    "wrong type": (
        lambda key: [{"who": 5, "n": "x"}],
        "column 'who' does not take what was given.*expected values of type String",
    ),
    "wrong frame": (lambda key: pl.DataFrame({"n": [1]}), "keyed process 'seen' gave columns .*select and cast them"),
}


@pytest.mark.parametrize("case", sorted(HANDLERS))
def test_a_keyed_function_that_fails_is_named_with_its_epoch(
    case: str, bench: Bench, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """Operator, key and epoch are in the message; with the function fixed the job goes on with the same output."""
    made, message = HANDLERS[case]
    with pytest.raises(JobError, match=f"{message}.*operator 'seen', epoch 3"):
        finish(bench.engine(topology(bench.sink, handler=handler_of(made))))
    finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), undisturbed)


# The store


class FullDisk(Faults):
    """No room for files whose name begins so."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def during_write(self, name: str) -> None:
        if name.startswith(self.prefix):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("prefix", ["checkpoints/data/", "checkpoints/0", "journal/"])
def test_a_full_disk_loses_nothing(
    prefix: str, bench: Bench, undisturbed: dict[str, pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that found no room is named; with room again the job goes on with the same output."""
    with started(bench.engine(topology(bench.sink))) as engine:
        assert engine.step()
    with monkeypatch.context() as full:
        full.setattr(Faults, "from_environment", classmethod(lambda cls: FullDisk(prefix)))
        with pytest.raises(StorageError, match=rf"cannot write {bench.store}/{prefix}.*No space left on device.*make room"):
            finish(bench.engine(topology(bench.sink)))
    assert not [path for path in bench.store.rglob(".*") if path.is_file()], "an unfinished write is removed"
    finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), undisturbed)


def mount(*arguments: str) -> None:
    """Mount something, or skip where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root; the injected fault above covers the same")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not allowed here ({done.stderr.strip()}); other tests cover the same")


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    mount(*arguments, str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def wide_script() -> list[list[pl.DataFrame]]:
    """Enough keys for checkpoints that outgrow a small disk."""
    keys = [f"key-{i:05d}" for i in range(2000)]
    rows = [(START + timedelta(seconds=i % 4), key, i) for i, key in enumerate(keys)]
    shifted = [
        pl.DataFrame(rows, schema=SCHEMA, orient="row").with_columns(pl.col("at") + timedelta(seconds=4 * e)) for e in range(6)
    ]
    return [[made] for made in shifted]


def test_a_disk_that_is_really_full_loses_nothing(tmp_path: Path) -> None:
    """A file system of 256 KiB runs out during a checkpoint; moved to a larger one, the job goes on with the same output."""
    wanted = Bench(tmp_path / "wanted")
    finish(wanted.engine(topology(wanted.sink, scripted(wide_script()))))
    bench, kept = Bench(tmp_path / "small"), tmp_path / "kept"
    bench.folder.mkdir()
    with mounted(bench.store, "-t", "tmpfs", "-o", "size=256k", "tmpfs"):
        with pytest.raises(StorageError, match=r"cannot write .*No space left on device.*make room.*run the same command again"):
            finish(bench.engine(topology(bench.sink, scripted(wide_script())), checkpoint_interval=1))
        subprocess.run(["cp", "-a", f"{bench.store}/.", str(kept)], check=True)
    subprocess.run(["cp", "-a", f"{kept}/.", str(bench.store)], check=True)
    finish(bench.engine(topology(bench.sink, scripted(wide_script())), checkpoint_interval=1))
    assert_same_output(bench.shown(), wanted.shown())


def test_a_read_only_checkpoint_folder_is_refused_and_a_writable_one_resumes(
    bench: Bench, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """Neither a new job nor one that is there can begin on it; once it is writable, the job goes on."""
    with started(bench.engine(topology(bench.sink))) as engine:
        engine.step()
        engine.step()
        engine.step()
    with mounted(bench.store, "--bind", "-o", "ro", str(bench.store)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(bench.store)], check=False)
        with pytest.raises(StorageError, match=r"cannot write .*Read-only file system.*set its permissions right"):
            finish(bench.engine(topology(bench.sink)))
    finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), undisturbed)


def test_a_file_in_place_of_the_checkpoint_folder_is_refused(bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """The path is named; with the file out of the way the job begins."""
    bench.store.write_text("not a folder")
    with pytest.raises(StorageError, match=rf"cannot write {bench.store}/probe-.*it is a file, not a folder"):
        finish(bench.engine(topology(bench.sink)))
    bench.store.unlink()
    finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), undisturbed)


def test_a_store_that_cannot_be_opened_is_named(bench: Bench) -> None:
    """An unknown kind of URL."""
    with pytest.raises(StorageError, match=r"'nowhere://x' is not a store that can be opened.*expected a path or an fsspec URL"):
        bench.engine(topology(bench.sink), checkpoint_url="nowhere://x")


# Files that are torn or altered


def interrupted(bench: Bench, epochs: int = 5) -> None:
    """A job with checkpoints of epochs 2 and 4 that ended after some epochs, as by a crash."""
    with started(bench.engine(topology(bench.sink))) as engine:
        for _ in range(epochs):
            assert engine.step()


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x40
    path.write_bytes(content)


def remove(path: Path) -> None:
    path.unlink()


DAMAGES = {"cut in half": cut_in_half, "a flipped byte": flip_byte, "removed": remove}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
@pytest.mark.parametrize("pattern", ["checkpoints/data/*00004-*", "checkpoints/*00004-*.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    damage: str, pattern: str, bench: Bench, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """A state file or a manifest of the newest checkpoint: the output is still exactly the same."""
    interrupted(bench)
    damaged = sorted(bench.store.glob(pattern))[0]
    DAMAGES[damage](damaged)
    finish(bench.engine(topology(bench.sink)))
    (warning,) = bench.warnings()
    assert str(damaged) in warning and "checkpoint of epoch 4 cannot be used" in warning
    assert "going back to the checkpoint of epoch 2" in warning
    assert_same_output(bench.shown(), undisturbed)
    again = Bench(bench.folder, bench.sink)
    finish(again.engine(topology(bench.sink)), drain=False)
    assert again.warnings() == [], "the next run has a whole checkpoint again"


def test_a_driver_that_starts_reads_no_state(bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """Nodes read the runs that they restore, and verify them; the driver reads manifests only."""
    interrupted(bench)
    engine, read = bench.engine(topology(bench.sink)), []
    for name in ("read", "read_range"):
        real = getattr(engine.store, name)
        setattr(engine.store, name, lambda file, *place, real=real: (read.append(file), real(file, *place))[1])
    finish(engine)
    assert [name for name in read if name.startswith("checkpoints/0")] and not [name for name in read if "/data/" in name]
    assert_same_output(bench.shown(), undisturbed)


def test_damage_found_when_a_lost_node_comes_back_makes_the_job_go_back(
    bench: Bench, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """The checkpoint was whole when the driver started; healthy partitions go back too, and nothing is shown twice."""
    engine = bench.engine(topology(bench.sink), checkpoint_interval=2)
    engine.runner = runner = InlineRunner(nodes={"a": Member(1), "b": Member(1)})
    with started(engine):
        for _ in range(5):
            assert engine.step()
        for path in bench.store.glob("checkpoints/data/*00004-*"):
            flip_byte(path)
        runner.kill("b")
        # Where the machine is busy, what is lost does not fit on the node that is left.
        runner.add("c", Member(1))
        engine.finish_recovery()
        engine.run(until_idle=True, drain=True)
        (warning,) = bench.warnings()
        assert "checkpoint of epoch 4 cannot be used" in warning and "going back to the checkpoint of epoch 2" in warning
        engine.checkpoint()
    assert_same_output(bench.shown(), undisturbed)
    assert None in open_job(str(bench.store)).problems().values()


def test_where_no_checkpoint_is_whole_the_job_refuses_rather_than_lose_input(bench: Bench) -> None:
    """The journal before the older checkpoint is gone, so beginning anew would repeat and lose."""
    interrupted(bench)
    for path in bench.store.glob("checkpoints/*.json"):
        cut_in_half(path)
    shown = bench.shown()
    with pytest.raises(CorruptFileError, match="restore the checkpoint files from a copy, or start a new job"):
        finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), shown)


def test_a_damaged_only_checkpoint_without_journal_after_it_is_refused(bench: Bench) -> None:
    """With one checkpoint kept, an orderly stop leaves nothing else to begin from."""
    finish(bench.engine(topology(bench.sink), checkpoints_kept=1), drain=False)
    for path in bench.store.glob("checkpoints/*.json"):
        cut_in_half(path)
    with pytest.raises(CorruptFileError):
        finish(bench.engine(topology(bench.sink), checkpoints_kept=1), drain=False)


def test_a_damaged_first_checkpoint_falls_back_to_the_beginning(bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """Until there are two checkpoints, the journal from the first epoch on is the previous one."""
    interrupted(bench, 3)
    for path in bench.store.glob("checkpoints/*.json"):
        cut_in_half(path)
    finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), undisturbed)


class ForgettingReader(ScriptedReader):
    """Gives up what it was told is committed, as a queue does."""

    def __init__(self, epochs, gone: Path) -> None:
        super().__init__(epochs)
        self.gone = gone

    def commit(self, end):
        self.gone.write_text(str(end["epoch"]))

    def read(self, partition):
        if self.gone.exists() and partition[0] < int(self.gone.read_text()):
            raise LookupError(f"epoch {partition[0]} was committed and is gone")
        return super().read(partition)


class ForgettingSource(ScriptedSource):
    """A scripted source that keeps only what is not committed."""

    def reader(self, log):
        return ForgettingReader(self.epochs, log.store.path and Path(log.store.root).parent / "gone")


def test_a_source_may_forget_only_what_the_oldest_kept_checkpoint_has(bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """`commit` promises that the rows are never asked for again, whatever checkpoint a restart uses."""

    def forgetting() -> Topology:
        made = scripted(script())
        return topology(bench.sink, ForgettingSource(made.epochs, made.columns))

    with started(bench.engine(forgetting())) as engine:
        for _ in range(5):
            engine.step()
    cut_in_half(sorted(bench.store.glob("checkpoints/*00004-*.json"))[0])
    finish(bench.engine(forgetting()))
    assert_same_output(bench.shown(), undisturbed)


@pytest.mark.parametrize("damage", ["cut in half", "a flipped byte"])
def test_a_damaged_journal_record_is_named(damage: str, bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """The journal has no second copy: the job refuses to guess, and goes on when the record is restored."""
    interrupted(bench)
    record = sorted(bench.store.glob("journal/*.json"))[-2]
    whole = record.read_bytes()
    DAMAGES[damage](record)
    shown = bench.shown()
    with pytest.raises(
        CorruptFileError, match=rf"{record} does not fit its checksum.*restore it from a copy, or start a new job"
    ):
        finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), shown)
    record.write_bytes(whole)
    finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), undisturbed)


def test_a_damaged_job_file_is_named(bench: Bench) -> None:
    """What was fixed when the job began cannot be guessed."""
    interrupted(bench)
    cut_in_half(bench.store / "job.json")
    with pytest.raises(CorruptFileError, match=rf"{bench.store}/job.json cannot be read.*restore it from a copy"):
        finish(bench.engine(topology(bench.sink)))


# A job that is not the one that was begun


CHANGES = {
    "key groups": (
        {"key_groups": 3},
        "asks for 3 key groups, but its checkpoint has 2; key groups are fixed for the life of a job",
    ),
    "operator name": ({"totals": "sums"}, r"\(gone: totals; new: sums\); expected the same names"),
    "state schema": ({"more_totals": {"n": count()}}, "operator 'totals' has another state schema"),
    "state field": ({"state": value_of(pl.Int32)}, "operator 'seen' has another state schema"),
    "window size": ({"size": "6s"}, "operator 'windows' was Window.*size_us=5000000.* and is now Window.*size_us=6000000"),
    "topology name": ({"name": "other"}, "the topology is called 'other', but the checkpointed job 'job'"),
}


@pytest.mark.parametrize("case", sorted(CHANGES))
def test_a_changed_job_is_refused_and_the_old_one_goes_on(case: str, bench: Bench, undisturbed: dict[str, pl.DataFrame]) -> None:
    """The message says what changed and what to do; nothing is touched."""
    changes, message = CHANGES[case]
    interrupted(bench)
    files_before = {path: path.stat().st_mtime_ns for path in bench.store.rglob("*") if path.is_file()}
    with pytest.raises(IncompatibleJobError, match=message) as caught:
        finish(bench.engine(topology(bench.sink, **changes)))
    assert f"restore the old one, or start a new job with another checkpoint URL than {bench.store}" in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in bench.store.rglob("*") if path.is_file()} == files_before
    finish(bench.engine(topology(bench.sink)))
    assert_same_output(bench.shown(), undisturbed)


# Names that mean harm


HOSTILE = ["../../x", "/etc/passwd", "a/../../b", "..", "x\x00y", "con\n", "a%2f..", "$(touch x)", "'; drop", "\u202e", " "]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_never_becomes_a_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As topology, operator, query or staged part: refused before anything is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TopologyError, match="choose such a name"):
        TopologyBuilder(name)
    with pytest.raises(TopologyError, match="choose such a name"):
        TopologyBuilder("job").source(name, scripted(script()))
    with pytest.raises(TopologyError, match="choose such a name"):
        job = TopologyBuilder("job")
        job.source("rows", scripted(script())).query(name)
        job.build()
    with pytest.raises(SinkError, match="becomes part of a file name"):
        ParquetSink(str(tmp_path / "out"), folder_per_query=True).open(name, pl.Schema(SCHEMA), JobReference("1", "job", "out"))
    assert list(tmp_path.iterdir()) == []


def test_run_until_done_tells_why_a_job_stopped(bench: Bench) -> None:
    """The telemetry's last event has the error, and no checkpoint is made of a failed epoch."""
    broken = topology(bench.sink, function=failing_at(START, raising))
    with pytest.raises(JobError):
        run_until_done(bench.engine(broken), until_idle=True)
    assert "division by zero" in bench.events[-1].reason
    assert not list(bench.store.glob("checkpoints/*.json"))


def test_rows_without_event_time_can_be_left_out_where_they_enter(tmp_path: Path) -> None:
    """The condition of a source is asked before its rows must have a time, and the message of the refusal says so."""
    frame = pl.DataFrame({"at": [START, None, START + timedelta(seconds=1)], "n": [1, 2, 3]})
    for where, wanted in ((None, None), (pl.col("at").is_not_null(), [1, 3]), (pl.col("n") == 1, [1])):
        bench = Bench(tmp_path / str(wanted))
        job = TopologyBuilder("timed")
        job.source("rows", scripted([[frame]]), event_time="at", where=where).query("rows", sink=bench.sink)
        if wanted is None:
            with pytest.raises(BadRowError, match=r"where=pl.col\('at'\).is_not_null\(\), or route them .*bad_rows='route'"):
                finish(bench.engine(job.build()))
        else:
            finish(bench.engine(job.build()))
            assert bench.shown()["rows"]["n"].to_list() == wanted


class ForeignReaderSource(ScriptedSource):
    """A source of a user that makes something else than a reader."""

    def reader(self, log):
        return object()


def test_a_source_whose_reader_keeps_no_contract_is_refused(bench: Bench) -> None:
    """What the engine calls is declared: a reader that does not derive from it is refused by name, before anything runs."""
    made = scripted(script())
    with pytest.raises(TopologyError, match="made a reader of the class object; expected a SourceReader"):
        finish(bench.engine(topology(bench.sink, ForeignReaderSource(made.epochs, made.columns))))
