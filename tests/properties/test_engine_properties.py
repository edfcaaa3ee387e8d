"""The epoch engine over random topologies, inputs and epoch cuts: the output follows from the input alone."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from resurge.builder import TopologyBuilder
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

Cuts = list[list[list[Row]]]
"""The epochs of one source, each a list of splits, each a list of rows."""


@dataclass(frozen=True)
class Layout:
    """How a job is run, which its output must not depend on."""

    key_groups: int
    slots: int
    chained: bool
    checkpoint_interval: int


layouts = st.builds(Layout, st.integers(1, 7), st.integers(1, 4), st.booleans(), st.integers(0, 3))
whos = st.sampled_from(["a", "b", "c", "d", None])


@st.composite
def inputs(draw: st.DrawFn) -> list[list[Row]]:
    """Rows of two sources in order of arrival, none more than the disorder behind the newest before it."""
    made = []
    for _ in range(2):
        least = draw(st.sampled_from([8, 4, 0]))
        one = st.tuples(st.integers(0, 5), st.integers(0, DISORDER_S), whos, st.integers(0, 9))
        steps = draw(st.lists(one, min_size=least, max_size=14))
        second, rows = START_S, []
        for step, behind, who, amount in steps:
            second += step
            rows.append((second - behind, who, amount))
        made.append(rows)
    return made


@st.composite
def cut(draw: st.DrawFn, rows: list[Row]) -> Cuts:
    """The same rows in the same order, cut into epochs and these into splits."""

    def pieces(items: list[Row], most: int) -> list[list[Row]]:
        places = sorted(draw(st.lists(st.integers(0, len(items)), max_size=most - 1)))
        return [items[low:high] for low, high in zip([0, *places], [*places, len(items)], strict=True)]

    return [pieces(epoch, 3) for epoch in pieces(rows, 5)]


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
        finish(bench.engine(made, **options))
        return {f"query-{number}": bench.sink.table(f"query-{number}", epoch=True) for number in range(len(specs))}


def in_order(shown: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return {query: rows.sort(pl.all()) for query, rows in shown.items()}


thorough = settings(max_examples=30, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
quick = settings(max_examples=8, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])


@thorough
@given(st.data(), st.lists(endings(3).filter(is_cut_independent), min_size=1, max_size=3), inputs(), layouts)
def test_the_result_is_that_of_a_plain_computation_whatever_cuts_key_groups_and_slots(
    data: st.DataObject, specs: list[Spec], rows: list[list[Row]], layout: Layout
) -> None:
    """With a watermark that covers the disorder, the last word of every query is what plain Python computes at once."""
    cuts = [data.draw(cut(source)) for source in rows]
    shown = run(specs, cuts, layout)
    for number, spec in enumerate(specs):
        note(f"{spec}:\n{shown[f'query-{number}']}")
        assert last_word(spec, shown[f"query-{number}"]) == expected(spec, rows), spec


@quick
@given(st.data(), st.lists(endings(3), min_size=1, max_size=3), inputs(), layouts, layouts, st.integers(0, 3))
def test_the_same_cuts_give_the_same_rows_in_the_same_epochs_whatever_key_groups_slots_and_chaining(
    data: st.DataObject, specs: list[Spec], rows: list[list[Row]], one: Layout, other: Layout, watermark_s: int
) -> None:
    """Also where rows are late, because the watermark is tighter than the disorder, and where updates are counted."""
    cuts = [data.draw(cut(source)) for source in rows]
    assert_same_output(in_order(run(specs, cuts, one, watermark_s)), in_order(run(specs, cuts, other, watermark_s)), str(specs))


@quick
@given(
    st.data(),
    st.lists(endings(3), min_size=1, max_size=2),
    inputs(),
    layouts,
    st.lists(st.tuples(st.integers(0, 3), st.booleans())),
)
def test_a_job_that_is_stopped_after_any_epochs_and_resumed_shows_the_same_rows(
    data: st.DataObject, specs: list[Spec], rows: list[list[Row]], layout: Layout, stops: list[tuple[int, bool]]
) -> None:
    """Stopped in order (with a last checkpoint) or abruptly (without), again and again, on any number of slots."""
    cuts = [data.draw(cut(source)) for source in rows]
    wanted = in_order(run(specs, cuts, layout))
    with workbench() as bench:
        made = topology(bench, specs, cuts, layout.key_groups)
        options = {"chained": layout.chained, "checkpoint_interval": layout.checkpoint_interval}
        for number, (epochs, in_order_) in enumerate(stops):
            engine = bench.engine(made, slots=1 + (layout.slots + number) % 4, **options)
            engine.start()
            engine.run(epochs, until_idle=True)
            engine.close("" if in_order_ else "stopped abruptly")
        finish(bench.engine(made, slots=layout.slots, **options))
        shown = {query: bench.sink.table(query, epoch=True) for query in wanted}
    assert_same_output(in_order(shown), wanted, str(specs))


@thorough
@given(
    st.data(), inputs(), layouts, st.integers(0, 4), st.integers(0, 4), st.sampled_from([(4, 4), (6, 2), (5, 3)]), st.booleans()
)
def test_every_row_is_in_a_window_or_in_the_side_output_of_late_rows(
    data: st.DataObject,
    rows: list[list[Row]],
    layout: Layout,
    watermark_s: int,
    lateness_s: int,
    span: tuple[int, int],
    mapped: bool,
) -> None:
    """With real lateness: rows in panes of their own plus late rows are all rows, and none is in both."""
    numbered = [[(at, who, number) for number, (at, who, _) in enumerate(source)] for source in rows]
    cuts = [data.draw(cut(source)) for source in numbered]
    with workbench() as bench:
        job = TopologyBuilder("late", key_groups=layout.key_groups)
        sources = [
            job.source(f"source-{i}", source_of(made), event_time="at", watermark=watermark_s) for i, made in enumerate(cuts)
        ]
        first, second = [source.map(f"m{i}", "at", "who", "amount", pl.lit(i).alias("of")) for i, source in enumerate(sources)]
        given_rows = job.union("both", first, second) if mapped else first
        # The row's own number is part of the key: a window then tells of a single row whether it was taken.
        window = given_rows.window("windows", *span, key=("who", "amount", "of"), lateness=lateness_s, emit="final", n=count())
        window.query("windows", sink=bench.sink)
        window.late_rows("late").query("late", sink=bench.sink)
        finish(bench.engine(job.build(), slots=layout.slots, chained=layout.chained))
        taken = set(bench.sink.table("windows").select("of", "amount").rows())
        late = bench.sink.table("late").select("of", "amount").rows()
        counted = sum(event.late_rows.get("windows", 0) for event in bench.events if hasattr(event, "late_rows"))
    everything = {(of, number) for of in range(2 if mapped else 1) for number in range(len(numbered[of]))}
    assert taken.isdisjoint(late)
    assert taken | set(late) == everything and len(late) == len(set(late))
    assert counted == len(late)
