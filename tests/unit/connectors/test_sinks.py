"""Every built-in sink keeps the laws, and each says clearly what it refuses."""

import errno
import itertools
import os
import pickle
from pathlib import Path

import fsspec
import msgspec
import polars as pl
import pytest

from resurge.connectors.contracts import StagedPart
from resurge.connectors.sinks import CallbackSink, DiscardSink, MemorySink, ParquetSink
from resurge.errors import SinkError
from resurge.testing.sink_conformance import JOB, OTHER_JOB, SCHEMA, check_sink, rows_for


def visible(sink: ParquetSink) -> pl.DataFrame:
    files = sorted(Path(sink.path).glob("**/*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files]) if files else pl.DataFrame(schema=SCHEMA)


@pytest.mark.parametrize("folder_per_query", [False, True])
def test_parquet_sink_keeps_the_laws_of_sinks(tmp_path, folder_per_query):
    """Staging, publishing, repeating, abandoning and crashing show each committed row once."""
    numbers = itertools.count()
    check_sink(
        lambda: ParquetSink(tmp_path / str(next(numbers)), folder_per_query),
        visible,
        lambda sink: ParquetSink(sink.path, folder_per_query),
    )


def test_parquet_sink_keeps_the_laws_on_any_fsspec_url():
    """The same laws hold where there is no rename."""
    numbers = itertools.count()
    store = fsspec.filesystem("memory")

    def read(sink: ParquetSink) -> pl.DataFrame:
        files = sorted(store.glob(f"{sink.path}/**/*.parquet"))
        return pl.concat([pl.read_parquet(store.cat_file(file)) for file in files]) if files else pl.DataFrame(schema=SCHEMA)

    check_sink(lambda: ParquetSink(f"memory://sink-{next(numbers)}/out"), read, lambda sink: ParquetSink(sink.path))


def test_memory_sink_keeps_the_laws_of_sinks():
    """Rows live in the driver, each once."""
    check_sink(MemorySink, lambda sink: sink.table())


def test_discard_sink_counts_each_row_once():
    """Its count obeys the laws though it keeps no rows."""
    check_sink(DiscardSink, lambda sink: sink.rows)


def test_discard_sink_forgets_what_is_never_published_again():
    """Parts are named by their attempt, so that what is not forgotten grows for ever."""
    sink = DiscardSink()
    for epoch in range(50):
        sink.publish([StagedPart("q", epoch, f"slot-0-{epoch}", 2)])
        sink.forget("q", epoch - 2)
    assert sink.rows == 100
    assert len(sink._last_epochs) == 2


def test_callback_sink_keeps_the_laws_of_sinks():
    """Within a process the callback gets each row once."""

    class Recording(CallbackSink):
        def __init__(self) -> None:
            self.given: list[pl.DataFrame] = []
            super().__init__(lambda epoch, frame: self.given.append(frame))

    check_sink(Recording, lambda sink: pl.concat([pl.DataFrame(schema=SCHEMA), *sink.given]))


def test_a_sink_that_shows_rows_twice_is_found_out():
    """The conformance check fails for a sink that appends on every publish, and names the law."""

    class Forgetful(MemorySink):
        def publish(self, parts):
            for part in parts:
                self._frames[part.query, part.epoch, f"{part.part}-{len(self._frames)}"] = pl.read_ipc(part.payload)

    with pytest.raises(AssertionError, match="Publishing the same parts again must change nothing"):
        check_sink(Forgetful, lambda sink: sink.table())


class ByAttempt(MemorySink):
    """Keeps what each attempt staged, as if attempts at one part had different rows."""

    def __reduce__(self):
        return (ByAttempt, ())

    def stage(self, query, epoch, part, attempt, frame):
        return msgspec.structs.replace(super().stage(query, epoch, part, attempt, frame), location=attempt)

    def publish(self, parts):
        super().publish([msgspec.structs.replace(part, part=f"{part.part}-{part.location}") for part in parts])


def test_a_sink_that_takes_another_attempt_for_other_rows_is_found_out():
    """After a crash the last epoch is staged and published anew; a sink that keeps rows by attempt would show it twice."""

    with pytest.raises(AssertionError, match="published again from another attempt, must be visible once"):
        check_sink(ByAttempt, lambda sink: sink.table())


def test_a_dataset_reader_never_sees_staged_files(tmp_path):
    """Staged files lie under a name that neither a glob nor a dataset reader takes."""
    sink = ParquetSink(tmp_path)
    sink.open("q", SCHEMA, JOB)
    staged = sink.stage("q", 7, "p0", "a1", rows_for(7, "p0", 2))
    assert list(tmp_path.glob("**/*.parquet")) == []
    assert [path.name for path in (tmp_path / "_staging").iterdir()] == ["7.a1.p0.parquet.staged"]
    sink.publish([staged])
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("**/*.parquet")] == ["epoch=7/p0.parquet"]


def test_cleaning_leaves_committed_parts_that_are_not_yet_published(tmp_path):
    """Only what was staged after the committed epoch, or is already shown, goes."""
    sink = ParquetSink(tmp_path)
    sink.open("q", SCHEMA, JOB)
    shown = sink.stage("q", 1, "p0", "a1", rows_for(1, "p0", 1))
    sink.stage("q", 1, "p0", "a2", rows_for(1, "p0", 1))
    sink.stage("q", 2, "p0", "a1", rows_for(2, "p0", 1))
    sink.stage("q", 3, "p0", "a1", rows_for(3, "p0", 1))
    sink.publish([shown])
    sink.clean("q", committed_epoch=2)
    assert [path.name for path in (tmp_path / "_staging").iterdir()] == ["2.a1.p0.parquet.staged"]


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".hidden", "a b", "a.b", "x\x00", "é"])
def test_hostile_names_are_refused(tmp_path, name):
    """A name that could leave the folder or collide never becomes a path."""
    sink = ParquetSink(tmp_path / "out", folder_per_query=True)
    frame = rows_for(1, "p0", 1)
    with pytest.raises(SinkError, match="expected 1 to 120 letters"):
        sink.stage("q", 1, name, "a1", frame)
    with pytest.raises(SinkError, match="expected 1 to 120 letters"):
        sink.stage("q", 1, "p0", name, frame)
    with pytest.raises(SinkError, match="expected 1 to 120 letters"):
        sink.open(name, SCHEMA, JOB)
    with pytest.raises(SinkError, match="expected a file name as `stage` makes it"):
        sink.publish([StagedPart("q", 1, "p0", 1, location="../../etc/passwd")])
    assert list(tmp_path.iterdir()) == []


def test_two_queries_in_one_folder_are_refused_unless_each_has_its_own(tmp_path):
    """The first query owns the folder; the error says how to share a path."""
    ParquetSink(tmp_path / "one").open("first", SCHEMA, JOB)
    with pytest.raises(SinkError, match=r"belongs to query 'first'.*folder_per_query=True"):
        ParquetSink(tmp_path / "one").open("second", SCHEMA, JOB)
    shared = ParquetSink(tmp_path / "two", folder_per_query=True)
    for query in ("first", "second"):
        shared.open(query, SCHEMA, JOB)
        shared.publish([shared.stage(query, 1, "p0", "a1", rows_for(1, query, 1))])
    assert sorted(path.parts[-3] for path in (tmp_path / "two").glob("**/*.parquet")) == ["first", "second"]


def test_a_destination_that_cannot_be_written_is_refused_at_open(tmp_path):
    """Here a file stands where the folder should be, which even the superuser cannot write into."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SinkError, match=r"could not write to .*make the folder writable"):
        ParquetSink(tmp_path / "file" / "out").open("q", SCHEMA, JOB)


def test_a_full_disk_is_a_clear_error_and_shows_nothing(tmp_path, monkeypatch):
    """The torn staged file is removed, and staging works again when there is room."""
    sink = ParquetSink(tmp_path)
    sink.open("q", SCHEMA, JOB)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(SinkError, match="the disk is full: make room"):
        patched.setattr(os, "fsync", full)
        sink.stage("q", 1, "p0", "a1", rows_for(1, "p0", 2))
    assert list((tmp_path / "_staging").iterdir()) == []
    sink.publish([sink.stage("q", 1, "p0", "a2", rows_for(1, "p0", 2))])
    assert visible(sink).height == 2


def test_a_staged_file_that_vanished_is_an_error_not_a_gap(tmp_path):
    """A committed part whose rows are gone is reported."""
    sink = ParquetSink(tmp_path)
    sink.open("q", SCHEMA, JOB)
    staged = sink.stage("q", 1, "p0", "a1", rows_for(1, "p0", 2))
    (tmp_path / "_staging" / staged.location).unlink()
    with pytest.raises(SinkError, match=r"cannot be published.*is gone"):
        sink.publish([staged])


def test_memory_sink_ships_nothing_to_executors_and_tells_epochs():
    """A pickled copy is empty and small; the table can name each row's epoch."""
    sink = MemorySink()
    sink.open("q", SCHEMA, JOB)
    assert sink.table().schema == SCHEMA
    for epoch in (2, 1):
        sink.publish([sink.stage("q", epoch, "p0", "a1", rows_for(epoch, "p0", 1000))])
    assert len(pickle.dumps(sink)) < 200
    assert pickle.loads(pickle.dumps(sink)).frames == []
    assert sink.table("q", epoch=True)["epoch"].to_list() == [1] * 1000 + [2] * 1000
    assert len(sink.frames) == 2
    with pytest.raises(SinkError, match="has the rows of q, but 'other' was asked for"):
        sink.table("other")


def test_callback_gets_each_epoch_once_in_order_and_again_after_it_failed():
    """Parts of one epoch come together; a callback that fails is called again with the same epoch."""
    calls, fail = [], [True]

    def callback(epoch: int, frame: pl.DataFrame) -> None:
        if epoch == 2 and fail.pop() if fail else False:
            raise ValueError("the database is down")
        calls.append((epoch, frame["key"].to_list()))

    sink = CallbackSink(callback)
    sink.open("q", SCHEMA, JOB)
    copy = pickle.loads(pickle.dumps(sink))
    parts = [copy.stage("q", epoch, part, "a1", rows_for(epoch, part, 1)) for epoch in (2, 1) for part in ("p1", "p0")]
    with pytest.raises(SinkError, match="callback of query 'q' failed for epoch 2: ValueError: the database is down"):
        sink.publish(parts)
    sink.publish(parts)
    assert calls == [(1, ["1-p0-0", "1-p1-0"]), (2, ["2-p0-0", "2-p1-0"])]


def test_callback_is_not_called_for_an_epoch_without_rows():
    """Whether the epoch has no part at all, as the engine leaves it, or only empty ones."""
    calls = []
    sink = CallbackSink(lambda epoch, frame: calls.append((epoch, frame.height)))
    sink.open("q", SCHEMA, JOB)
    for epoch, rows in ((1, 1), (2, 0), (3, 2)):
        sink.publish([sink.stage("q", epoch, "p0", "a1", rows_for(epoch, "p0", rows))])
    sink.publish([])
    assert calls == [(1, 1), (3, 2)]


def test_a_callback_of_parts_can_tell_a_repeated_part_from_the_rest_of_its_epoch():
    """Parts of one epoch that come apart have identities of their own; a part that comes again after a restart has its old one."""
    given = []

    def opened():
        sink = CallbackSink(lambda part: given.append((part.identity, part.epoch, part.frame["key"].to_list())), per_part=True)
        sink.open("q", SCHEMA, JOB)
        return sink

    sink = opened()
    first, second = (sink.stage("q", 1, part, "a1", rows_for(1, part, 1)) for part in ("p0", "p1"))
    sink.publish([first])
    sink.publish([first, second])
    assert given == [("0123abcd/q/1/p0", 1, ["1-p0-0"]), ("0123abcd/q/1/p1", 1, ["1-p1-0"])]
    restarted = opened()
    restarted.publish([restarted.stage("q", 1, part, "a2", rows_for(1, part, 1)) for part in ("p0", "p1")])
    assert given[2:] == given[:2]


def test_a_callback_of_parts_that_fails_is_not_given_what_it_has_dealt_with():
    """Within one process only the part that failed, and those after it, come again."""
    given = []

    def store(part):
        if part.identity.endswith("p1") and part.identity not in given:
            given.append(part.identity)
            raise ValueError("down")
        given.append(part.identity)

    sink = CallbackSink(store, per_part=True)
    sink.open("q", SCHEMA, JOB)
    parts = [sink.stage("q", 1, part, "a1", rows_for(1, part, 1)) for part in ("p0", "p1", "p2")]
    with pytest.raises(SinkError, match="failed for epoch 1: ValueError: down"):
        sink.publish(parts)
    sink.publish(parts)
    assert [identity[-2:] for identity in given] == ["p0", "p1", "p1", "p2"]


def test_a_callback_must_be_a_function():
    """A mistake is found before the first epoch."""
    with pytest.raises(SinkError, match="expected a function of"):
        CallbackSink(3).open("q", SCHEMA, JOB)


def test_several_epochs_published_at_once_in_any_order_all_count():
    """A driver that catches up publishes more than one epoch at a time."""
    seen = []
    for sink in (DiscardSink(), CallbackSink(lambda epoch, frame: seen.append(epoch))):
        sink.open("q", SCHEMA, JOB)
        sink.publish([sink.stage("q", epoch, "p0", "a1", rows_for(epoch, "p0", 2)) for epoch in (3, 1, 2)])
        assert isinstance(sink, CallbackSink) or sink.rows == 6
    assert seen == [1, 2, 3]


class Forgetting(MemorySink):
    """Takes any job, and takes its epochs for those of the first."""

    def __reduce__(self):
        return (Forgetting, ())

    def open(self, query, schema, job):
        self._schemas[query] = schema


def test_a_sink_that_takes_another_jobs_epochs_for_its_own_is_found_out():
    """The rows of a second job must not vanish."""
    with pytest.raises(AssertionError, match="Another job must be refused with both jobs named, or its rows must be visible"):
        check_sink(Forgetting, lambda sink: sink.table())


def test_a_folder_belongs_to_one_job_and_says_so(tmp_path):
    """A second job is told of both jobs and what to do; the folder is as it was."""
    sink = ParquetSink(tmp_path / "out")
    sink.open("q", SCHEMA, JOB)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(
        SinkError, match=r"out belongs to job 0123abcd .*out/jobs/first.* but job 4567cdef .*give the sink another"
    ):
        ParquetSink(tmp_path / "out").open("q", SCHEMA, OTHER_JOB)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_with_output_of_nobody_is_refused(tmp_path):
    """Without the owner file, epochs that are there would be taken for the job's own."""
    sink = ParquetSink(tmp_path)
    sink.open("q", SCHEMA, JOB)
    sink.publish([sink.stage("q", 1, "p0", "a1", rows_for(1, "p0", 1))])
    (tmp_path / "_owner.json").unlink()
    with pytest.raises(SinkError, match=r"has output, but no _owner.json says of which job"):
        sink.open("q", SCHEMA, OTHER_JOB)


def test_a_damaged_owner_file_is_refused(tmp_path):
    """Nobody can tell whose folder it is."""
    ParquetSink(tmp_path).open("q", SCHEMA, JOB)
    (tmp_path / "_owner.json").write_text('{"query": "q"}')
    with pytest.raises(SinkError, match=r"_owner.json is damaged .*restore it, or give the sink another path"):
        ParquetSink(tmp_path).open("q", SCHEMA, JOB)
