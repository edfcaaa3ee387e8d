"""The epoch engine over random topologies, inputs and epoch cuts: the output follows from the input alone."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from resurge.api.builder import TopologyBuilder
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.runtime.driver.session import default_local_root
from tests.support.engines import Bench, assert_same_output, finish
from tests.support.random_topologies import (
    START_S,
    Describer,
    Row,
    Spec,
    endings,
    expected,
    frame_of,
    is_cut_independent,
    last_word,
)
from tests.support.scripted import ScriptedSource, scripted

DISORDER_S = 6
WHOS = ("a", "a", "b", "c", None)

Cuts = list[list[list[Row]]]
"""The epochs of one source, each a list of splits, each a list of rows."""


@dataclass(frozen=True)
class Layout:
    """How a job is run, which its output must not depend on."""

    key_groups: int
    slots: int
    chained: bool
    checkpoint_interval: int
    gathers: bool = False


layouts = st.builds(Layout, st.integers(1, 7), st.integers(1, 4), st.booleans(), st.integers(0, 3), st.booleans())
seeds = st.integers(0, 2**32 - 1)
"""Rows and cuts follow from a seed: drawn one by one they would nearly always be few, early and in one epoch."""


def rows_of(rng: random.Random, disorder_s: int = DISORDER_S) -> list[list[Row]]:
    """Rows of two sources in order of arrival, none more than the disorder behind the newest before it."""
    made = []
    for _ in range(2):
        second, rows = START_S, []
        for _ in range(rng.choice((0, 8, 12, 16, 16, 20))):
            second += rng.choice((0, 0, 1, 2, 5))
            rows.append((second - rng.choice((0, 0, rng.randint(0, disorder_s))), rng.choice(WHOS), rng.randrange(10)))
        made.append(rows)
    return made


def cut(rng: random.Random, rows: list[Row]) -> Cuts:
    """The same rows in the same order, cut into epochs and these into splits; some are empty."""

    def pieces(items: list[Row], most: int) -> list[list[Row]]:
        places = sorted(rng.randint(0, len(items)) for _ in range(rng.randrange(most)))
        return [items[low:high] for low, high in zip([0, *places], [*places, len(items)], strict=True)]

    return [pieces(epoch, 3) for epoch in pieces(rows, 6)]


def source_of(cuts: Cuts) -> ScriptedSource:
    return scripted([[frame_of(split) for split in epoch] for epoch in cuts])


def topology(bench: Bench, specs: list[Spec], cuts: list[Cuts], key_groups: int, watermark_s: int = DISORDER_S) -> Topology:
    job = TopologyBuilder("random", key_groups=key_groups)
    sources = [job.source(f"source-{i}", source_of(made), event_time="at", watermark=watermark_s) for i, made in enumerate(cuts)]
    describer = Describer(job, sources)
    for number, spec in enumerate(specs):
        describer.stream(spec).query(f"query-{number}", sink=bench.sink)
    return job.build()


@contextmanager
def workbench() -> Iterator[Bench]:
    """A job's folder for one example; in memory where that is possible, for these are many."""
    folder = Path(tempfile.mkdtemp(prefix="engine-properties-", dir=default_local_root()))
    try:
        yield Bench(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(specs: list[Spec], cuts: list[Cuts], layout: Layout, watermark_s: int = DISORDER_S) -> dict[str, pl.DataFrame]:
    """Every query's rows with their epochs, in the order in which they were shown."""
    with workbench() as bench:
        made = topology(bench, specs, cuts, layout.key_groups, watermark_s)
        options = {"chained": layout.chained, "checkpoint_interval": layout.checkpoint_interval, "slots": layout.slots}
        options["gathers"] = layout.gathers
        finish(bench.engine(made, **options))
        return {f"query-{number}": bench.sink.table(f"query-{number}", epoch=True) for number in range(len(specs))}


def in_order(shown: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return {query: rows.sort(pl.all()) for query, rows in shown.items()}


thorough = settings(max_examples=30, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
quick = settings(max_examples=8, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(seeds, st.lists(endings(3).filter(is_cut_independent), min_size=1, max_size=3), layouts)
def test_the_result_is_that_of_a_plain_computation_whatever_cuts_key_groups_and_slots(
    seed: int, specs: list[Spec], layout: Layout
) -> None:
    """With a watermark that covers the disorder, the last word of every query is what plain Python computes at once."""
    rng = random.Random(seed)
    rows = rows_of(rng)
    shown = run(specs, [cut(rng, source) for source in rows], layout)
    for number, spec in enumerate(specs):
        note(f"{spec}:\n{shown[f'query-{number}']}")
        assert last_word(spec, shown[f"query-{number}"]) == expected(spec, rows), spec


@quick
@given(seeds, st.lists(endings(3), min_size=1, max_size=3), layouts, layouts, st.integers(0, 3))
def test_the_same_cuts_give_the_same_rows_in_the_same_epochs_whatever_key_groups_slots_and_chaining(
    seed: int, specs: list[Spec], one: Layout, other: Layout, watermark_s: int
) -> None:
    """Also where rows are late, because the watermark is tighter than the disorder, and where updates are counted."""
    rng = random.Random(seed)
    cuts = [cut(rng, source) for source in rows_of(rng)]
    assert_same_output(in_order(run(specs, cuts, one, watermark_s)), in_order(run(specs, cuts, other, watermark_s)), str(specs))


@quick
@given(
    seeds,
    st.lists(endings(3), min_size=1, max_size=2),
    layouts,
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=3),
)
def test_a_job_that_is_stopped_after_any_epochs_and_resumed_shows_the_same_rows(
    seed: int, specs: list[Spec], layout: Layout, stops: list[tuple[int, bool]]
) -> None:
    """Stopped in order (with a last checkpoint) or abruptly (without), again and again, on any number of slots."""
    rng = random.Random(seed)
    cuts = [cut(rng, source) for source in rows_of(rng)]
    wanted = in_order(run(specs, cuts, layout))
    with workbench() as bench:
        made = topology(bench, specs, cuts, layout.key_groups)
        options = {"chained": layout.chained, "checkpoint_interval": layout.checkpoint_interval, "gathers": layout.gathers}
        for number, (epochs, is_orderly) in enumerate(stops):
            engine = bench.engine(made, slots=1 + (layout.slots + number) % 4, **options)
            engine.start()
            engine.run(epochs, until_idle=True)
            engine.close("" if is_orderly else "stopped abruptly")
        finish(bench.engine(made, slots=layout.slots, **options))
        shown = {query: bench.sink.table(query, epoch=True) for query in wanted}
    assert_same_output(in_order(shown), wanted, str(specs))


@thorough
@given(seeds, layouts, st.integers(0, 4), st.integers(0, 4), st.sampled_from([(4, 4), (6, 2), (5, 3)]), st.booleans())
@example(9056, Layout(7, 4, False, 1), 3, 0, (4, 4), True)
def test_every_row_is_in_a_window_or_in_the_side_output_of_late_rows(
    seed: int, layout: Layout, watermark_s: int, lateness_s: int, span: tuple[int, int], united: bool
) -> None:
    """With real lateness: rows in windows of their own plus late rows are all rows, and none is in both."""
    rng = random.Random(seed)
    numbered = [[(at, who, n) for n, (at, who, _) in enumerate(source)] for source in rows_of(rng, disorder_s=20)]
    cuts = [cut(rng, source) for source in numbered]
    with workbench() as bench:
        job = TopologyBuilder("late", key_groups=layout.key_groups)
        sources = [
            job.source(f"source-{i}", source_of(made), event_time="at", watermark=watermark_s) for i, made in enumerate(cuts)
        ]
        first, second = [source.map(f"m{i}", "at", "who", "amount", pl.lit(i).alias("of")) for i, source in enumerate(sources)]
        given_rows = job.union("both", first, second) if united else first
        # The row's own number is part of the key: a window then tells of a single row whether it was taken.
        window = given_rows.window("windows", *span, key=("who", "amount", "of"), lateness=lateness_s, emit="final", n=count())
        window.query("windows", sink=bench.sink)
        window.late_rows("late").query("late", sink=bench.sink)
        finish(bench.engine(job.build(), slots=layout.slots, chained=layout.chained))
        taken = set(bench.sink.table("windows").select("of", "amount").rows())
        late = bench.sink.table("late").select("of", "amount").rows()
        counted = sum(event.late_rows.get("windows", 0) for event in bench.events if hasattr(event, "late_rows"))
    everything = {(of, number) for of in range(2 if united else 1) for number in range(len(numbered[of]))}
    assert taken.isdisjoint(late)
    assert taken | set(late) == everything and len(late) == len(set(late))
    assert counted == len(late)


KEYED_BY = {"ranking": "window_end", "recount": "window_start"}


@quick
@given(seeds, st.lists(endings(3), min_size=1, max_size=3), layouts, st.integers(1, 4), st.booleans())
def test_the_rows_of_a_key_come_in_the_same_order_whichever_key_groups_share_a_slot(
    seed: int, specs: list[Spec], layout: Layout, slots: int, chained: bool
) -> None:
    """Row for row, not only as a set; the order between keys is free."""
    rng = random.Random(seed)
    cuts = [cut(rng, source) for source in rows_of(rng)]
    one, other = (run(specs, cuts, made, 2) for made in (layout, replace(layout, slots=slots, chained=chained)))
    for number, (query, rows) in enumerate(one.items()):
        key = ["epoch", KEYED_BY.get(specs[number][0], "who")]
        wanted = rows.group_by(key, maintain_order=True).agg(pl.all()).sort(key)
        assert other[query].group_by(key, maintain_order=True).agg(pl.all()).sort(key).equals(wanted), query
