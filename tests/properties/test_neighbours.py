"""What comes of a key group is the same to the last bit, whichever other key groups are in the same call."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from resurge.model.operator import Determinism, StreamShape
from resurge.operators.aggregate import KeyedAggregate
from resurge.operators.aggregates import count, max_, mean, min_, sum_
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator, StatelessOperator
from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.operators.join import IntervalJoin
from resurge.operators.keyed_process import KeyedProcess
from resurge.operators.keyed_state import value_of
from resurge.operators.lookup import LookupJoin
from resurge.operators.maintain import Maintain
from resurge.operators.sessions import SessionWindow
from resurge.operators.state import KeyedTable, State, joined
from resurge.operators.stateless import Transform
from resurge.operators.table_process import TableProcess
from resurge.operators.top_k import TopK
from resurge.operators.windows import LateRows, Window, WindowSpan
from resurge.runtime.worker.calls import Call, Made, StatelessCall
from resurge.runtime.worker.grouped import Grouped, mask, together
from resurge.runtime.worker.outcomes import OutcomeLog
from resurge.storage.durable import DurableStore

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


def totals_by_key(before: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of each key alone; the output is ordered by a total, so the order of keys depends on which others are there."""
    more = rows.group_by("who", maintain_order=True).agg(pl.col("x").sum())
    state = pl.concat([before, more]).group_by("who").agg(pl.col("x").sum())
    return state, rows.join(state, on="who", nulls_equal=True, maintain_order="left").select("who", x="x_right").sort("x")


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
    "table process by key": TableProcess(
        "w",
        ("s",),
        ("who",),
        totals_by_key,
        pl.Schema({"who": pl.String, "x": pl.Float64}),
        pl.Schema({"x": pl.Float64}),
        per_key=True,
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

    def take(self, inputs: Sequence[tuple[pl.Schema, Grouped]], context: EpochContext, log: OutcomeLog | None = None) -> Made:
        """One epoch."""
        mine = [rows.within(mask(self.groups, KEY_GROUPS)) for _, rows in inputs]
        batches = [Batch(schema, (rows.frame,)) for (schema, _), rows in zip(inputs, mine, strict=True)]
        call = Call(self.operator, self.groups, KEY_GROUPS, mine, batches, self.state, context)
        made = call.run(log)
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


class Drawing:
    """A random number per key and epoch, kept, shown, and drawn once more when its timer fires."""

    def on_rows(self, key: tuple[Any, ...], rows: pl.DataFrame, state: Any, timers: Any) -> list[dict[str, Any]]:
        state["sum"] = (state["sum"] or 0.0) + random.random()
        timers.set(rows["at"].item())
        return [{"at": START, "value": state["sum"]}]

    def on_timer(self, key: tuple[Any, ...], time: datetime, state: Any, timers: Any) -> list[dict[str, Any]]:
        state["sum"] = (state["sum"] or 0.0) + random.random()
        return [{"at": time, "value": state["sum"]}]


def draw(before: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A random number per key and epoch."""
    drawn = rows.select("who").unique(maintain_order=True).with_columns(x=pl.lit(random.random()))
    return drawn, drawn


RANDOM: dict[str, StatefulOperator] = {
    "process": replace(OPERATORS["arbitrary process"], handler=Drawing),  # type: ignore[call-arg]
    "table process": replace(
        OPERATORS["table process by key"],
        function=draw,  # type: ignore[call-arg]
        declared=Determinism.ARBITRARY,
        per_key=False,
    ),
    "table process by key": replace(OPERATORS["table process by key"], function=draw, declared=Determinism.ARBITRARY),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", RANDOM)
def test_what_was_logged_of_a_key_group_is_not_computed_again_with_other_neighbours(name: str, seed: int, tmp_path: Path) -> None:
    """An attempt with some key groups of an operator that draws at random decides these; one with all takes them from the log."""
    rng, operator = random.Random(seed), RANDOM[name]
    store = DurableStore(str(tmp_path))
    everybody = Slot(operator, range(KEY_GROUPS))
    alone = {group: Slot(operator, [group]) for group in range(KEY_GROUPS)}
    some = [Slot(operator, groups) for groups in shared_out(rng)]
    for epoch in range(EPOCHS):
        newest = (START - datetime(1970, 1, 1)) // timedelta(microseconds=1) + (4 * epoch + 1) * SECOND
        context, log = EpochContext(epoch, None, newest), OutcomeLog(store, "w", 0, epoch, 0)
        inputs = [grouped(operator, 0, [rows_of(rng, epoch) for _ in range(3)])]
        first = rng.randrange(len(some))
        parts = {first: some[first].take(inputs, context, log)}
        whole = everybody.take(inputs, context, log)
        parts |= {index: slot.take(inputs, context, log) for index, slot in enumerate(some) if index != first}
        for index, made in parts.items():
            for group in some[index].groups:
                assert contents(made, group) == contents(whole, group), f"key group {group} in epoch {epoch}"
        for group, slot in alone.items():
            assert contents(slot.take(inputs, context, log), group) == contents(whole, group), f"key group {group} in {epoch}"
        some = moved(operator, some, rng)


def tripled(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("x") * 3)


def ranked(rows: pl.DataFrame) -> pl.DataFrame:
    """What becomes of a row depends on all others of the table."""
    return rows.filter(pl.col("x").rank() > 2).with_columns(pl.lit(rows.height, pl.Int64).alias("n"))


LOOKED_UP = pl.DataFrame({"who": ["a", "c", "e"], "more": [1, 2, 3]})


class Table:
    """What a lookup join reads."""

    def schema(self) -> pl.Schema:
        return LOOKED_UP.schema


STATELESS: dict[str, StatelessOperator] = {
    "filter": Transform("t", ("s",), "filter", None, (pl.col("x") > 0.2, pl.col("who").str.contains("[a-f]"))),
    "map": Transform("t", ("s",), "map", None, (pl.col("who"), pl.col("at").dt.truncate("2s"), (pl.col("x") / 3).round(3))),
    "flat map": Transform("t", ("s",), "flat_map", None, (pl.col("x"), (pl.col("who") + "-" + pl.col("who")).str.split("-"))),
    "expression that is not looked into": Transform("t", ("s",), "map", None, (pl.col("x").log().alias("y"), pl.col("n"))),
    "function per row": Transform("t", ("s",), "map", tripled, per_row=True),
    "function": Transform("t", ("s",), "map", ranked),
    "lookup": LookupJoin("t", ("s",), Table(), ("who",)),
    "inner lookup": LookupJoin("t", ("s",), Table(), ("who",), "inner"),
    "late rows": LateRows("t", ("s",), WindowSpan(2 * SECOND, SECOND), "at"),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", STATELESS)
def test_a_key_group_does_not_see_its_neighbours_below_a_keyed_operator(name: str, seed: int) -> None:
    """What an operator without state makes of many key groups is what it makes of each alone, also if it looks at whole tables."""
    rng, operator = random.Random(seed), STATELESS[name]
    (watermark_us,) = pl.Series([START + timedelta(seconds=1)]).dt.epoch("us")
    call = StatelessCall(operator, operator.shape([SHAPE]).schema, EpochContext(0, watermark_us, watermark_us, lambda: LOOKED_UP))
    frame = pl.concat([rows_of(rng, 0) for _ in range(3)])
    rows = Grouped.of(frame, key_groups_of(hash_rows(frame, ("who",)), KEY_GROUPS), KEY_GROUPS)
    whole = call.by_group(rows, mask(range(KEY_GROUPS), KEY_GROUPS))
    for groups in shared_out(rng):
        part = call.by_group(rows.within(mask(groups, KEY_GROUPS)), mask(groups, KEY_GROUPS))
        for group in groups:
            wanted = bits(operator.apply(rows.of_group(group), call.context))
            assert bits(whole.of_group(group)) == bits(part.of_group(group)) == wanted


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
