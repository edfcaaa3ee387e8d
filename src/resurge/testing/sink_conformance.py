"""The laws of a sink as checks that anyone can run against their own sink.

def test_my_sink_keeps_the_laws(tmp_path):
    numbers = itertools.count()
    check_sink(lambda: MySink(tmp_path / str(next(numbers))), lambda sink: read_everything(sink.path))
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from resurge.connectors.contracts import JobReference, Sink, StagedPart
from resurge.errors import SinkError

QUERY = "conformance"
JOB = JobReference("0123abcd", "conformance", "out/jobs/first")
OTHER_JOB = JobReference("4567cdef", "conformance", "out/jobs/second")
SCHEMA = pl.Schema({"key": pl.String, "count": pl.Int64})


def check_sink(
    make_sink: Callable[[], Any],
    read_rows: Callable[[Any], pl.DataFrame | int],
    restart: Callable[[Any], Any] = lambda sink: sink,
) -> None:
    """Run every law; an AssertionError says which one does not hold.

    `make_sink` makes a sink with an empty destination. `read_rows` reads all that is visible there: rows with the columns of
    SCHEMA (others are ignored), or just their number. `restart` makes the sink that a new driver process would have, for the
    same destination; a sink that lives in its process may be returned as it is.
    """
    for law in LAWS:
        trial = SinkTrial(make_sink(), read_rows, restart, law.__doc__ or law.__name__)
        trial.sink.open(QUERY, SCHEMA, JOB)
        law(trial)


@dataclass
class SinkTrial:
    """One law being tried on one sink."""

    sink: Sink
    read_rows: Callable[[Any], pl.DataFrame | int]
    restart_sink: Callable[[Any], Any]
    law: str

    def stage(self, epoch: int, part: str, rows: int, attempt: str = "first") -> StagedPart:
        """Stage as the engine does: on a pickled copy of the sink, the staged part then logged and read back."""
        copy: Sink = pickle.loads(pickle.dumps(self.sink))
        staged = copy.stage(QUERY, epoch, part, attempt, rows_for(epoch, part, rows))
        assert (staged.query, staged.epoch, staged.part, staged.rows) == (QUERY, epoch, part, rows), (
            f"{self.law} expected a staged part that names its query, epoch, part and {rows} rows, got {staged!r}"
        )
        return msgspec.msgpack.decode(msgspec.msgpack.encode(staged), type=StagedPart)

    def restart(self, committed_epoch: int) -> None:
        """A new driver: it opens the sink and removes what abandoned attempts left."""
        self.sink = self.restart_sink(self.sink)
        self.sink.open(QUERY, SCHEMA, JOB)
        self.sink.clean(QUERY, committed_epoch)

    def expect(self, *visible: tuple[int, str, int]) -> None:
        """Exactly these (epoch, part, rows) are visible."""
        expected = pl.concat([pl.DataFrame(schema=SCHEMA), *(rows_for(*one) for one in visible)])
        shown = self.read_rows(self.sink)
        if isinstance(shown, int):
            assert shown == expected.height, f"{self.law} expected {expected.height} visible rows, got {shown}"
            return
        shown = (
            shown.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items()) if shown.width else pl.DataFrame(schema=SCHEMA)
        )
        order = list(SCHEMA)
        assert shown.sort(order).equals(expected.sort(order)), f"{self.law} expected the visible rows {expected}, got {shown}"


def rows_for(epoch: int, part: str, rows: int) -> pl.DataFrame:
    """Rows that tell of which epoch and part they are."""
    return pl.DataFrame({"key": [f"{epoch}-{part}-{row}" for row in range(rows)], "count": list(range(rows))}, schema=SCHEMA)


def staged_rows_are_not_visible(trial: SinkTrial) -> None:
    """What is only staged must not be visible."""
    trial.stage(1, "p0", 3)
    trial.expect()


def published_rows_are_visible(trial: SinkTrial) -> None:
    """What is published must be visible, epoch after epoch."""
    trial.sink.publish([trial.stage(1, "p0", 3), trial.stage(1, "p1", 2)])
    trial.expect((1, "p0", 3), (1, "p1", 2))
    trial.sink.publish([trial.stage(2, "p0", 1)])
    trial.expect((1, "p0", 3), (1, "p1", 2), (2, "p0", 1))


def publishing_again_shows_once(trial: SinkTrial) -> None:
    """Publishing the same parts again must change nothing."""
    parts = [trial.stage(1, "p0", 3), trial.stage(1, "p1", 2)]
    trial.sink.publish(parts)
    trial.sink.publish(parts)
    trial.expect((1, "p0", 3), (1, "p1", 2))


def another_attempt_at_a_shown_epoch_shows_once(trial: SinkTrial) -> None:
    """An epoch that was shown, then published again from another attempt, must be visible once."""
    shown = ((1, "p0", 3), (1, "p1", 2))
    trial.sink.publish([trial.stage(*part, "first") for part in shown])
    trial.sink.publish([trial.stage(*part, "second") for part in shown])
    trial.expect(*shown)
    late = [trial.stage(*part, "third") for part in shown]
    trial.restart(committed_epoch=1)
    trial.sink.publish(late)
    trial.sink.publish([trial.stage(*part, "fourth") for part in shown])
    trial.expect(*shown)


def crash_between_two_parts_loses_nothing(trial: SinkTrial) -> None:
    """After a crash between the publishing of two parts, publishing both must show each once."""
    first, second = trial.stage(1, "p0", 3), trial.stage(1, "p1", 2)
    trial.sink.publish([first])
    trial.restart(committed_epoch=1)
    trial.sink.publish([first, second])
    trial.expect((1, "p0", 3), (1, "p1", 2))


def crash_before_publishing_loses_nothing(trial: SinkTrial) -> None:
    """After a crash between commit and publishing, the committed parts must still be publishable."""
    part = trial.stage(1, "p0", 3)
    trial.restart(committed_epoch=1)
    trial.expect()
    trial.sink.publish([part])
    trial.expect((1, "p0", 3))


def an_abandoned_attempt_is_never_visible(trial: SinkTrial) -> None:
    """Of two attempts at a part only the published one must be visible."""
    abandoned, published = trial.stage(1, "p0", 3, "first"), trial.stage(1, "p0", 3, "second")
    trial.sink.publish([published])
    trial.sink.discard([abandoned])
    trial.expect((1, "p0", 3))


def discarding_twice_is_harmless(trial: SinkTrial) -> None:
    """Discarding what is gone already must do nothing, and must not touch another attempt."""
    abandoned, published = trial.stage(1, "p0", 3, "first"), trial.stage(1, "p0", 3, "second")
    trial.sink.discard([abandoned])
    trial.sink.discard([abandoned])
    trial.sink.publish([published])
    trial.expect((1, "p0", 3))


def an_attempt_lost_in_a_crash_is_cleaned(trial: SinkTrial) -> None:
    """An epoch that was staged, not committed, and run again after a crash must be visible once."""
    trial.sink.publish([trial.stage(1, "p0", 1)])
    trial.stage(2, "p0", 3, "first")
    trial.restart(committed_epoch=1)
    trial.expect((1, "p0", 1))
    trial.sink.publish([trial.stage(2, "p0", 3, "second")])
    trial.expect((1, "p0", 1), (2, "p0", 3))


def an_empty_part_is_fine(trial: SinkTrial) -> None:
    """A part without rows must be accepted and show nothing."""
    trial.sink.publish([trial.stage(1, "p0", 0), trial.stage(1, "p1", 2)])
    trial.sink.publish([])
    trial.expect((1, "p1", 2))


def another_job_is_refused_or_shown(trial: SinkTrial) -> None:
    """Another job must be refused with both jobs named, or its rows must be visible beside those of the first job."""
    trial.sink.publish([trial.stage(1, "p0", 3)])
    other = trial.restart_sink(trial.sink)
    try:
        other.open(QUERY, SCHEMA, OTHER_JOB)
    except SinkError as error:
        for job in (JOB, OTHER_JOB):
            assert job.id in str(error), f"{trial.law} expected an error that names {job}, got {error}"
        trial.expect((1, "p0", 3))
        return
    copy: Sink = pickle.loads(pickle.dumps(other))
    other.publish([copy.stage(QUERY, 1, "p0", "first", rows_for(1, "p0", 2))])
    trial.expect((1, "p0", 3), (1, "p0", 2))


def the_same_job_may_come_again(trial: SinkTrial) -> None:
    """The job that a sink belongs to must be able to open it after every restart, and go on."""
    trial.sink.publish([trial.stage(1, "p0", 3)])
    trial.restart(committed_epoch=1)
    trial.restart(committed_epoch=1)
    trial.sink.publish([trial.stage(2, "p0", 1)])
    trial.expect((1, "p0", 3), (2, "p0", 1))


def forgetting_changes_nothing_that_is_shown(trial: SinkTrial) -> None:
    """After earlier epochs were forgotten, later ones that are published again must be visible once."""
    trial.sink.publish([trial.stage(1, "p0", 3), trial.stage(1, "p1", 2)])
    trial.sink.publish([trial.stage(2, "p0", 1)])
    trial.sink.forget(QUERY, 1)
    trial.sink.publish([trial.stage(2, "p0", 1), trial.stage(3, "p1", 1)])
    trial.restart(committed_epoch=3)
    trial.sink.publish([trial.stage(2, "p0", 1), trial.stage(3, "p1", 1), trial.stage(3, "p0", 2)])
    trial.expect((1, "p0", 3), (1, "p1", 2), (2, "p0", 1), (3, "p1", 1), (3, "p0", 2))


LAWS: Sequence[Callable[[SinkTrial], None]] = (
    staged_rows_are_not_visible,
    published_rows_are_visible,
    publishing_again_shows_once,
    another_attempt_at_a_shown_epoch_shows_once,
    crash_between_two_parts_loses_nothing,
    crash_before_publishing_loses_nothing,
    an_abandoned_attempt_is_never_visible,
    discarding_twice_is_harmless,
    an_attempt_lost_in_a_crash_is_cleaned,
    an_empty_part_is_fine,
    another_job_is_refused_or_shown,
    the_same_job_may_come_again,
    forgetting_changes_nothing_that_is_shown,
)
