"""A state that is shipped, whole or as changes, is the state that was there."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.files import files
from resurge.connectors.sinks import DiscardSink
from resurge.errors import CorruptFileError, StorageError
from resurge.operators.aggregates import count, sum_
from resurge.operators.base import Batch, EpochContext, StatefulOperator
from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.operators.program import Program, compile_topology
from resurge.operators.state import State
from resurge.runtime.worker import partitions
from resurge.runtime.worker.calls import Call
from resurge.runtime.worker.grouped import Grouped, mask
from resurge.runtime.worker.messages import CohortReport, CohortWork, JobPlan, SlotReport, SlotWork
from resurge.runtime.worker.partitions import CohortStates, node_store
from resurge.runtime.worker.shipments import Wanted, install, opened, shipped

KEY_GROUPS = 8
START = datetime(2024, 1, 1)
SCHEMA = pl.Schema({"at": pl.Datetime("us"), "who": pl.String, "x": pl.Float64})
OPERATORS = ("totals", "windows", "best", "pairs")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Operators that change, remove and expire rows."""
    job = TopologyBuilder("ship", key_groups=KEY_GROUPS)
    source = files(tmp_path / "input", "parquet", SCHEMA)
    rows = job.source("rows", source, event_time="at")
    rows.aggregate("totals", key="who", n=count(), total=sum_("x")).query(sink=DiscardSink())
    rows.window("windows", key="who", size="6 seconds", slide="2 seconds", total=sum_("x")).query(sink=DiscardSink())
    rows.top_k("best", 2, by="x", per="who", identity="at").query(sink=DiscardSink())
    rows.join("pairs", rows.filter("some", pl.col("x") > 0), on="who", within="3 seconds").query(sink=DiscardSink())
    return compile_topology(job.build())


class Node:
    """One node that runs some key groups of an operator, one job per epoch."""

    def __init__(self, root: Path, program: Program, name: str, operator: str, groups: Sequence[int]) -> None:
        self.root, self.program, self.name, self.groups = str(root), program, name, list(groups)
        self.operator = program.topology.operators[operator]
        self.store = node_store(self.root, name)
        self.segment: str | None = None
        self.cursor = self.attempts = 0

    def states(self, epoch: int) -> CohortStates:
        """The states of a job that ends at this epoch."""
        self.attempts += 1
        plan = JobPlan("job", f"{self.attempts}", epoch, [], [SlotWork(self.name, [], [], [])], {}, self.root)
        return CohortStates(self.program, plan, 0, 1)

    def take(self, epoch: int, rows: pl.DataFrame, keep_after: int | None = None) -> None:
        """Run an epoch and save."""
        work = CohortWork(self.operator.name, self.groups, self.segment, cursor=self.cursor, keep_after=keep_after)
        states = self.states(epoch)
        cohort = states.load(work)
        assert isinstance(self.operator, StatefulOperator)
        grouped = [self._grouped(rows, side) for side in range(len(self.operator.inputs))]
        batches = [Batch(each.frame.schema, (each.frame,)) for each in grouped]
        newest_us = (START - datetime(1970, 1, 1)) // timedelta(microseconds=1) + epoch * 2_000_000
        context = EpochContext(epoch, newest_us - 4_000_000, newest_us - 2_000_000)
        call = Call(self.operator, self.groups, KEY_GROUPS, grouped, batches, cohort.state, context)
        cohort.advance(epoch, call.run())
        self.saved(states)

    def saved(self, states: CohortStates) -> CohortReport:
        """Save the job's states, as a task does at its end."""
        report = SlotReport(0, 1)
        states.save(report)
        self.segment, self.cursor = report.segment, report.cohorts[0].cursor
        self.segments = report.segments
        return report.cohorts[0]

    def _grouped(self, rows: pl.DataFrame, side: int) -> Grouped:
        assert isinstance(self.operator, StatefulOperator)
        shape = self.program.topology.shapes[self.operator.inputs[side]]
        key = (self.operator.keys() or ((),))[side]
        combiner = self.operator.combiner(shape)
        if combiner is not None:
            rows = combiner.combine(rows, shape)
        grouped = Grouped.of(rows, key_groups_of(hash_rows(rows, key), KEY_GROUPS), KEY_GROUPS)
        return grouped.within(mask(self.groups, KEY_GROUPS))

    def wanted(self, groups: Sequence[int], since: int | None = None) -> Wanted:
        """Ask for its committed state."""
        assert self.segment is not None
        return Wanted(self.operator.name, list(groups), self.segment, self.cursor, since)

    def receive(self, content: bytes) -> None:
        """Install a shipment and save it."""
        cursor = opened(content).cursor
        states = self.states(cursor)
        work = CohortWork(self.operator.name, self.groups, self.segment, cursor=cursor, until=cursor)
        install(states, work, self.cursor, content)
        self.saved(states)

    def state(self, groups: Sequence[int]) -> State:
        """What another process of the node finds of some key groups."""
        partitions._JOBS.clear()
        found = self.states(self.cursor).load(CohortWork(self.operator.name, self.groups, self.segment, cursor=self.cursor)).state
        return {name: table.within(groups, KEY_GROUPS) for name, table in found.items()}


def rows_of(rng: random.Random, epoch: int) -> pl.DataFrame:
    made = [
        (START + timedelta(seconds=2 * epoch + rng.choice((-3, 0, 1))), rng.choice("abcdefghijklmnop"), rng.random() - 0.2)
        for _ in range(rng.choice((0, 3, 30)))
    ]
    return pl.DataFrame(made, schema=SCHEMA, orient="row")


def assert_same(found: State, wanted: State) -> None:
    for name, table in wanted.items():
        assert found[name].low == table.low
        assert sorted(map(repr, found[name].rows().rows())) == sorted(map(repr, table.rows().rows())), name


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_copy_that_gets_changes_has_the_state_of_its_origin(operator: str, seed: int, program: Program, tmp_path: Path) -> None:
    """First everything, then changes of some epochs at a time, some of them twice; then both go on alike."""
    rng = random.Random(seed)
    origin = Node(tmp_path, program, "origin", operator, range(KEY_GROUPS))
    mine = sorted(rng.sample(range(KEY_GROUPS), 3))
    copy = Node(tmp_path, program, "copy", operator, mine)
    for epoch in range(1, 4):
        origin.take(epoch, rows_of(rng, epoch))
    copy.receive(shipped(program, origin.store, origin.wanted(mine)))
    assert_same(copy.state(mine), origin.state(mine))
    for epoch in range(4, 12):
        # Sometimes one more epoch is kept than the copy needs.
        origin.take(epoch, rows_of(rng, epoch), keep_after=copy.cursor - (rng.random() < 0.5 and copy.cursor > 3))
        if rng.random() < 0.5:
            content = shipped(program, origin.store, origin.wanted(mine, copy.cursor))
            assert opened(content).since == copy.cursor
            copy.receive(content)
            copy.receive(content)
            assert copy.cursor == epoch
            assert_same(copy.state(mine), origin.state(mine))
    copy.receive(shipped(program, origin.store, origin.wanted(mine, copy.cursor)))
    rows = rows_of(rng, 12)
    origin.take(12, rows)
    copy.take(12, rows)
    assert_same(copy.state(mine), origin.state(mine))


def test_everything_is_shipped_if_an_epoch_was_not_kept(program: Program, tmp_path: Path) -> None:
    """The receiver is told, and takes it as it is."""
    rng = random.Random(1)
    origin = Node(tmp_path, program, "origin", "totals", range(KEY_GROUPS))
    copy = Node(tmp_path, program, "copy", "totals", [2, 5])
    origin.take(1, rows_of(rng, 1), keep_after=0)
    copy.receive(shipped(program, origin.store, origin.wanted([2, 5])))
    origin.take(2, rows_of(rng, 2))
    origin.take(3, rows_of(rng, 3), keep_after=1)
    content = shipped(program, origin.store, origin.wanted([2, 5], since=1))
    assert opened(content).since is None
    copy.receive(content)
    assert_same(copy.state([2, 5]), origin.state([2, 5]))


def test_what_is_kept_is_let_go_when_it_is_released(program: Program, tmp_path: Path) -> None:
    """The files of kept changes are needed until a later epoch is named, also where a merge has made them part of a larger run."""
    rng = random.Random(2)
    origin = Node(tmp_path, program, "origin", "totals", range(KEY_GROUPS))
    for epoch in range(1, 9):
        origin.take(epoch, pl.concat([rows_of(rng, epoch) for _ in range(9)]), keep_after=0)
    assert len(origin.segments) == 8
    origin.take(9, rows_of(rng, 9), keep_after=8)
    assert len(origin.segments) < 6
    assert opened(shipped(program, origin.store, origin.wanted([0], since=8))).since == 8


def test_changes_are_refused_by_a_state_that_is_too_old(program: Program, tmp_path: Path) -> None:
    """What lies between is missing."""
    rng = random.Random(3)
    origin = Node(tmp_path, program, "origin", "totals", range(KEY_GROUPS))
    for epoch in range(1, 4):
        origin.take(epoch, rows_of(rng, epoch), keep_after=1)
    content = shipped(program, origin.store, origin.wanted([1], since=2))
    copy = Node(tmp_path, program, "copy", "totals", [1])
    with pytest.raises(StorageError, match="are at epoch 0; expected 2 or later"):
        copy.receive(content)


def test_a_damaged_shipment_is_refused(program: Program, tmp_path: Path) -> None:
    """Every byte is covered by a checksum."""
    origin = Node(tmp_path, program, "origin", "totals", range(KEY_GROUPS))
    origin.take(1, pl.concat([rows_of(random.Random(seed), 1) for seed in range(9)]))
    content = bytearray(shipped(program, origin.store, origin.wanted(range(KEY_GROUPS))))
    content[200] ^= 1
    with pytest.raises(CorruptFileError, match="does not fit its checksum"):
        Node(tmp_path, program, "copy", "totals", range(KEY_GROUPS)).receive(bytes(content))
