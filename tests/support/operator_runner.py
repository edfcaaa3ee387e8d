"""Run one operator alone over epochs: state threaded through, watermarks from event times, every promise checked on the way."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from polars.testing import assert_frame_equal

from resurge.model.operator import StreamShape
from resurge.operators.base import Batch, EpochContext, StatefulOperator
from resurge.operators.sorted_runs import TableDelta
from resurge.operators.state import KeyedTable

FOREVER_US = 10**15


@dataclass(frozen=True)
class Epoch:
    """One epoch's rows per input; `closing_us` raises the watermark at its end, `restored` runs it again on restored state."""

    frames: tuple[pl.DataFrame, ...]
    closing_us: int | None = None
    restored: bool = False


@dataclass(frozen=True)
class Result:
    """What came out, epoch by epoch."""

    outputs: tuple[pl.DataFrame, ...]
    late_rows: tuple[int, ...]
    state: dict[str, KeyedTable]

    @property
    def output(self) -> pl.DataFrame:
        """All output rows in order."""
        return pl.concat(self.outputs)


def run_epochs(operator: StatefulOperator, shapes: Sequence[StreamShape], epochs: Sequence[Epoch], delay_us: int = 0) -> Result:
    """Run the epochs one after another; an epoch that is run again must give the same again."""
    expected = operator.shape(shapes)
    state = {name: KeyedTable(spec) for name, spec in operator.tables(shapes).items()}
    newest: list[int | None] = [None] * len(shapes)
    watermark_us = None
    outputs, late = [], []
    for number, epoch in enumerate(epochs):
        newest = [later(newest[i], time_of(shapes[i], frame)) for i, frame in enumerate(epoch.frames)]
        reached = None if None in newest else min(time for time in newest if time is not None) - delay_us
        closing_us = later(watermark_us, later(reached, epoch.closing_us))
        context = EpochContext(number, watermark_us, closing_us)
        batches = [Batch(shape.schema, (frame,)) for shape, frame in zip(shapes, epoch.frames, strict=True)]
        outcome = operator.process(state, batches, context)
        assert outcome.output.schema == expected.schema
        if epoch.restored:
            state = {name: rebuilt(table) for name, table in state.items()}
            again = operator.process(state, batches, context)
            assert_frame_equal(outcome.output, again.output)
            assert outcome.late_rows == again.late_rows
        _check_event_time(operator, expected, outcome.output, watermark_us)
        state = {name: table.apply(outcome.changes.get(name, TableDelta())) for name, table in state.items()}
        outputs.append(outcome.output)
        late.append(outcome.late_rows)
        watermark_us = closing_us
    return Result(tuple(outputs), tuple(late), state)


def rebuilt(table: KeyedTable) -> KeyedTable:
    """The same table as one run, as after a restore."""
    return KeyedTable(table.spec, low=table.low).apply(TableDelta(table.rows()))


def later(left: int | None, right: int | None) -> int | None:
    """The later of two times that may be unknown."""
    known = [time for time in (left, right) if time is not None]
    return max(known, default=None)


def time_of(shape: StreamShape, frame: pl.DataFrame) -> int | None:
    """The newest event time of a frame, in microseconds."""
    if shape.event_time is None or not frame.height:
        return None
    time = frame.select(pl.col(shape.event_time).dt.epoch("us").max()).item()
    return None if time is None else int(time)


def _check_event_time(operator: StatefulOperator, shape: StreamShape, output: pl.DataFrame, watermark_us: int | None) -> None:
    """Output never lies further behind the watermark than the operator says."""
    if shape.event_time is None or watermark_us is None or not output.height:
        return
    earliest = output.select(pl.col(shape.event_time).dt.epoch("us").min()).item()
    assert earliest >= watermark_us - operator.watermark_delay_us()
