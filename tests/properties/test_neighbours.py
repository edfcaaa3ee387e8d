"""What comes of a key group is the same to the last bit, whichever other key groups are in the same call."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from resurge.model.operator import Determinism, StreamShape
from resurge.operators.aggregate import KeyedAggregate
from resurge.operators.aggregates import count, max_, mean, min_, sum_
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator
from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.operators.join import IntervalJoin
from resurge.operators.keyed_process import KeyedProcess
from resurge.operators.keyed_state import value_of
from resurge.operators.maintain import Maintain
from resurge.operators.sessions import SessionWindow
from resurge.operators.state import KeyedTable, State, joined
from resurge.operators.table_process import TableProcess
from resurge.operators.top_k import TopK
from resurge.operators.windows import Window, WindowSpan
from resurge.runtime.worker.calls import Call, Made
from resurge.runtime.worker.grouped import Grouped, mask, together

KEY_GROUPS = 6
EPOCHS = 5
SECOND = 1_000_000
START = datetime(2024, 1, 1)
SHAPE = StreamShape(pl.Schema({"at": pl.Datetime("us"), "who": pl.String, "n": pl.Int64, "x": pl.Float64}), "at")
NUMBERS = (("n", count()), ("total", sum_("x")), ("least", min_("x")), ("most", max_("n")), ("average", mean("x")))


class Remembering:
    """State, timers and output that depend on the order of rows."""

    def on_rows(self, key: tuple[Any, ...], rows: pl.DataFrame, state: Any, timers: Any) -> list[dict[str, Any]]:
        state["sum"] = (state["sum"] or 0.0) * 0.7 + sum(value or 0.0 for value in rows["x"])
        for at in rows["at"].drop_nulls():
            timers.set(at + timedelta(seconds=3))
            timers.set(at - timedelta(seconds=1))
        return [{"at": START, "value": state["sum"]}]

    def on_timer(self, key: tuple[Any, ...], time: datetime, state: Any, timers: Any) -> list[dict[str, Any]]:
        state["sum"] = (state["sum"] or 0.0) / 3
        return [{"at": time, "value": state["sum"]}]


def keep_last(before: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    last = rows.group_by("who", maintain_order=True).agg(pl.col("x").last())
    return last, before.select(pl.col("x").sum()).with_columns(rows=pl.lit(rows.height))


MADE = pl.Schema({"at": pl.Datetime("us"), "value": pl.Float64})
OPERATORS: dict[str, StatefulOperator] = {
    "window": Window("w", ("s",), ("who",), WindowSpan(6 * SECOND, 2 * SECOND, SECOND), NUMBERS),
    "window of sums": Window("w", ("s",), ("who",), WindowSpan(5 * SECOND, 2 * SECOND), (("n", count()), ("t", sum_("n")))),
    "window of floats": Window("w", ("s",), ("who",), WindowSpan(6 * SECOND, 3 * SECOND), (("total", sum_("x")),)),
    "final window": Window("w", ("s",), ("who",), WindowSpan(4 * SECOND, 4 * SECOND), NUMBERS, "final"),
    "two keys": Window("w", ("s",), ("who", "n"), WindowSpan(4 * SECOND, 2 * SECOND), (("total", sum_("x")),)),
    "sessions": SessionWindow("w", ("s",), ("who",), "at", 2 * SECOND, NUMBERS),
    "final sessions": SessionWindow("w", ("s",), ("who",), "at", 2 * SECOND, NUMBERS, SECOND, "final"),
    "join": IntervalJoin("w", ("s", "t"), ("who",), ("at", "at"), within_us=2 * SECOND),
    "left join": IntervalJoin("w", ("s", "t"), ("who",), ("at", "at"), window_us=3 * SECOND, how="left"),
    "unbounded join": IntervalJoin("w", ("s", "t"), ("who", "n"), (None, None)),
    "top k": TopK("w", ("s",), ("who",), "x", 3, ("n",)),
    "expiring top k": TopK("w", ("s",), ("at",), "x", 2, ("who",), expire="at"),
    "aggregate": KeyedAggregate("w", ("s",), ("who",), NUMBERS),
    "maintain": Maintain("w", ("s", "t"), ("who",), ("n",), "at", 3 * SECOND),
    "process": KeyedProcess("w", ("s",), ("who",), Remembering, MADE, (("sum", value_of(pl.Float64)),), time="at"),
    "arbitrary process": KeyedProcess(
        "w", ("s",), ("who",), Remembering, MADE, (("sum", value_of(pl.Float64)),), time="at", declared=Determinism.ARBITRARY
    ),
    "table process": TableProcess(
        "w", ("s",), ("who",), keep_last, pl.Schema({"x": pl.Float64, "rows": pl.Int32}), pl.Schema({"x": pl.Float64})
    ),
}


def rows_of(rng: random.Random, epoch: int) -> pl.DataFrame:
    """Rows of one split: floats whose sum depends on their order, nulls, some late; sometimes none."""
    made = [
        (
            START + timedelta(seconds=4 * epoch + rng.choice((-9, 0, 0, 1, 2, 3)), milliseconds=rng.randrange(3) * 500),
            rng.choice(("a", "b", "c", "d", "e", "f", "g", "h", None)),
            rng.randrange(4),
            rng.choice((None, 0.1, 1e16, -1e16, 3.3, rng.random())),
        )
        for _ in range(rng.choice((0, 5, 40)))
    ]
    return pl.DataFrame(made, schema=SHAPE.schema, orient="row")


def grouped(operator: StatefulOperator, side: int, splits: Sequence[pl.DataFrame]) -> tuple[pl.Schema, Grouped]:
    """The splits as they come to a keyed operator."""
    key = (operator.keys() or ((),))[side]
    combiner = operator.combiner(SHAPE)
    schema = combiner.schema(SHAPE) if combiner else SHAPE.schema
    frames = [combiner.combine(split, SHAPE) if combiner else split for split in splits]
    pieces = [Grouped.of(frame, key_groups_of(hash_rows(frame, key), KEY_GROUPS), KEY_GROUPS) for frame in frames]
    return schema, together(pieces)


class Slot:
    """Some key groups of an operator, called together."""

    def __init__(self, operator: StatefulOperator, groups: Sequence[int], state: State | None = None) -> None:
        self.operator = operator
        self.groups = sorted(groups)
        specs = operator.tables([SHAPE] * len(operator.inputs))
        self.state = state or {name: KeyedTable(spec) for name, spec in specs.items()}

    def take(self, inputs: Sequence[tuple[pl.Schema, Grouped]], context: EpochContext) -> Made:
        """One epoch."""
        mine = [rows.within(mask(self.groups, KEY_GROUPS)) for _, rows in inputs]
        batches = [Batch(schema, (rows.frame,)) for (schema, _), rows in zip(inputs, mine, strict=True)]
        call = Call(self.operator, self.groups, KEY_GROUPS, mine, batches, self.state, context)
        made = call.run(lambda group, compute: compute())
        self.state = made.state
        return made

    def split(self, groups: Sequence[int]) -> "Slot":
        """Some of the key groups, to go on elsewhere."""
        return Slot(self.operator, groups, {name: table.within(groups, KEY_GROUPS) for name, table in self.state.items()})


def bits(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Rows in order, floats by their bits."""
    floats = [name for name, kind in frame.schema.items() if kind == pl.Float64]
    as_bits = [pl.Series(name, frame.get_column(name).fill_null(-1.5).to_numpy().view(np.int64)) for name in floats]
    nulls = [frame.get_column(name).is_null().alias(f"{name} is null") for name in floats]
    return frame.with_columns(*as_bits, *nulls).rows()


def contents(made: Made, group: int) -> list[Any]:
    """What a call made of one key group: output, late rows and state."""
    alone = mask([group], KEY_GROUPS)
    state = {name: table.within([group], KEY_GROUPS).rows() for name, table in made.state.items()}
    return [
        bits(made.output.within(alone).frame),
        [bits(side.within(alone).frame) for side in made.late],
        {name: sorted(map(repr, bits(rows))) for name, rows in state.items()},
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", OPERATORS)
def test_a_key_group_does_not_see_its_neighbours(name: str, seed: int) -> None:
    """One call for all key groups, for some, and for each alone give the same rows in the same order, and the same state.

    In the middle some key groups leave, go on alone, and come back.
    """
    rng, operator = random.Random(seed), OPERATORS[name]
    everybody = Slot(operator, range(KEY_GROUPS))
    alone = {group: Slot(operator, [group]) for group in range(KEY_GROUPS)}
    some = [Slot(operator, groups) for groups in shared_out(rng)]
    watermark_us = None
    for epoch in range(EPOCHS):
        newest = (START - datetime(1970, 1, 1)) // timedelta(microseconds=1) + (4 * epoch + 1) * SECOND
        closing_us = newest if epoch < EPOCHS - 1 else newest + 10**12
        context = EpochContext(epoch, watermark_us, closing_us)
        inputs = [grouped(operator, side, [rows_of(rng, epoch) for _ in range(3)]) for side in range(len(operator.inputs))]
        whole = everybody.take(inputs, context)
        parts = [(slot.groups, slot.take(inputs, context)) for slot in some]
        for group, slot in alone.items():
            wanted = slot.take(inputs, context)
            assert contents(whole, group) == contents(wanted, group), f"key group {group} in epoch {epoch}"
            for groups, made in parts:
                if group in groups:
                    assert contents(made, group) == contents(wanted, group), f"key group {group} of {groups} in epoch {epoch}"
        assert whole.late_rows == sum(made.late_rows for _, made in parts)
        if epoch in (1, 3):
            some = moved(operator, some, rng)
        watermark_us = closing_us


def shared_out(rng: random.Random) -> list[list[int]]:
    places = [rng.randrange(3) for _ in range(KEY_GROUPS)]
    return [[group for group in range(KEY_GROUPS) if places[group] == place] for place in sorted(set(places))]


def moved(operator: StatefulOperator, slots: list[Slot], rng: random.Random) -> list[Slot]:
    """The key groups shared out anew: each slot's state is made of slices of others'."""
    found = []
    for groups in shared_out(rng):
        pieces = [slot.split([group for group in groups if group in slot.groups]) for slot in slots]
        state = {name: joined([piece.state[name] for piece in pieces]) for name in slots[0].state}
        found.append(Slot(operator, groups, state))
    return found


def test_the_test_notices_neighbours() -> None:
    """An operator that numbers the rows of a call fails it."""

    class Nosy(KeyedAggregate):
        def process(self, state: State, inputs: Sequence[Batch], context: EpochContext) -> Outcome:
            made = super().process(state, inputs, context)
            return Outcome(made.output.with_columns(n=pl.int_range(pl.len())), made.changes, routing=made.routing)

    OPERATORS["nosy"] = Nosy("w", ("s",), ("who",), NUMBERS)
    try:
        with pytest.raises(AssertionError):
            for seed in range(3):
                test_a_key_group_does_not_see_its_neighbours("nosy", seed)
    finally:
        del OPERATORS["nosy"]
