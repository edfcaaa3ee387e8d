"""ELASTIC's two-operator job on real Spark: load swings from one operator to the other, and copies lie where key groups go, or not.

All rows are the first operator's; then every second one percent more of them are the second one's. The first one's key groups
begin on node 1, the second one's on node 2. As in the paper, something else takes 70 % of nodes 0 and 2: that is only counted,
because it would take cores from what is measured. A node counts as so large that the job's whole load is 60 % of it. Loads are
what the job's tasks were measured to take, copies are kept and placed by the running job, and moves are real moves.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.benchmarks.users import asked, run_beside, wait_until
from resurge.connectors.contracts import Source, SourceLog
from resurge.connectors.paced import Pace, PacedReader, RowRange
from resurge.connectors.sinks import DiscardSink
from resurge.model.names import NodeId, Partition
from resurge.model.requests import CPAL, DIRECT, Move
from resurge.model.topology import Topology
from resurge.operators.keyed_state import value_of
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import cluster_runner
from resurge.studies.checkpoint_placement import SWINGING_FULL, Cluster, next_move
from resurge.telemetry.log import TelemetryLog

COMPARED = ("even", "correlated")
NODES, KEY_GROUPS, KEYS, SPLITS = 3, 10, 1_000, 3
ROWS_PER_S = 6_000.0
CALM_S, WATCHED_S, SWING_S = 5.0, 20.0, 100.0
"""The operators get their nodes, then load begins to swing; what is watched of that says what correlates, before anything moves."""
TOTAL_LOAD = 0.6
OTHER_LOADS = (0.7, 0.0, 0.7)
INTERVAL_S, CHECKPOINT_INTERVAL = 0.5, 10
ANSWER_S, WAIT_S, LOOK_S = 60.0, 240.0, 1.0
OPERATORS = ("first", "second")


class Moved(NamedTuple):
    """A key group that went from one node to another, and where its copy lay (-1: nowhere yet)."""

    key_group: str
    source: int
    target: int
    copy: int
    took_s: float
    pause_s: float


@dataclass(frozen=True)
class Swung:
    """What became of one run: the key groups that moved, in order."""

    algorithm: str
    moved: tuple[Moved, ...]

    @property
    def moves(self) -> int:
        """How many moved."""
        return len(self.moved)

    @property
    def assisted(self) -> int:
        """How many moved to the node of their copy."""
        return sum(move.target == move.copy for move in self.moved)

    @property
    def longest_pause_s(self) -> float:
        """The longest that one of them paused."""
        return max((move.pause_s for move in self.moved), default=0.0)

    @property
    def assisted_share(self) -> float:
        """The part of the moves that a copy assisted."""
        return self.assisted / self.moves if self.moves else 0.0


@dataclass(frozen=True)
class Swinging(Source):
    """Numbered rows, each for one of two operators; which one follows from when it arrives."""

    calm_s: float

    def schema(self) -> pl.Schema:
        """A key, and the operator that counts the row."""
        return pl.Schema({"key": pl.Int64(), "operator": pl.String()})

    def reader(self, log: SourceLog) -> "SwingingReader":
        """A reader of these rows."""
        return SwingingReader(self.calm_s)


class SwingingReader(PacedReader):
    """Rows at their rate; after a calm time a growing part of them is the second operator's."""

    def __init__(self, calm_s: float) -> None:
        super().__init__("rows", Pace(ROWS_PER_S, splits=SPLITS))
        self.calm_s = calm_s

    def rows(self, split: RowRange) -> pl.DataFrame:
        """The rows of a split: a pure function of it."""
        number = np.arange(split.first, split.last, dtype=np.int64)
        percent = np.clip((number / ROWS_PER_S - self.calm_s) * 100.0 / SWING_S, 0.0, 100.0)
        # Rows of each hundred go over to the other operator one by one, spread over the keys.
        is_second = number * 37 % 100 < percent
        key = number // 100 * 61 % KEYS
        return pl.DataFrame({"key": key, "operator": np.where(is_second, OPERATORS[1], OPERATORS[0])})


class Counting:
    """A simple count."""

    def on_row(self, key: tuple[int], row: Mapping[str, Any], state: Any, timers: Any) -> Any:
        """One more."""
        state["seen"] = (state["seen"] or 0) + 1
        return ()


def two_counts(calm_s: float) -> Topology:
    """The paper's job: one input, and two operators that count."""
    job = TopologyBuilder("swinging", key_groups=KEY_GROUPS)
    rows = job.source("rows", Swinging(calm_s))
    for name in OPERATORS:
        mine = rows.filter(f"for-{name}", pl.col("operator") == name)
        counts = mine.process(name, Counting, key="key", schema={"key": pl.Int64}, state={"seen": value_of(pl.Int64())})
        counts.query(sink=DiscardSink())
    return job.build()


def run_swings(algorithms: Sequence[str], progress: Callable[[str], None]) -> list[Swung]:
    """The same swing with each placement of copies, one after the other on one cluster."""
    found = []
    with EmbeddedCluster(NODES) as cluster, cluster_runner(cluster, "swinging") as first:
        for algorithm in algorithms:
            progress(f"load swings for {SWING_S:.0f} s, copies placed by {algorithm}")
            runner = SparkRunner(first.spark, first.cpu_share, first.node_names)
            found.append(_Swing(runner, algorithm).run())
    return found


class _Swing:
    """One job, and a thread that does what the paper's adaptation does: when a node is too full, a key group leaves it."""

    def __init__(self, runner: SparkRunner, algorithm: str) -> None:
        self.runner, self.algorithm = runner, algorithm
        self.moved: list[Moved] = []

    def run(self) -> Swung:
        """Until the load has swung."""
        with tempfile.TemporaryDirectory(prefix="resurge-study-") as folder:
            options = RunOptions(
                folder,
                interval_s=INTERVAL_S,
                checkpoint_interval=CHECKPOINT_INTERVAL,
                back_pressure=False,
                balance="off",
                copies=1,
                copies_placement=self.algorithm,
            )
            engine = Engine(two_counts(CALM_S), self.runner, options, TelemetryLog())
            run_beside(engine, lambda: self._adapt(engine))
        return Swung(self.algorithm, tuple(self.moved))

    def _adapt(self, engine: Engine) -> None:
        wait_until(
            lambda: engine.is_started and engine.recovery.all_live and engine.recovery.head > 1, "the first epochs", WAIT_S
        )
        began_s = time.monotonic()
        nodes = sorted(engine.recovery.capacity)
        for number, operator in enumerate(OPERATORS, start=1):
            asked(engine, Move(f"begin-{operator}", operator, nodes[number], how=DIRECT), ANSWER_S)
        time.sleep(max(0.0, began_s + WATCHED_S - time.monotonic()))
        while time.monotonic() < began_s + CALM_S + SWING_S:
            self._look(engine, nodes)
            time.sleep(LOOK_S)

    def _look(self, engine: Engine, nodes: Sequence[NodeId]) -> None:
        """What the simulated study decides, from measured loads and the copies that there are; then it is done."""
        state = engine.state
        at = {node: index for index, node in enumerate(nodes)}
        homes = {str(p): at[known.node] for p, known in state.recovery.statuses.items() if known.node in at}
        copies = dict.fromkeys(homes, -1) | {str(p): at[node] for p, node in sorted(state.copies) if node in at}
        cluster = Cluster(homes, copies, OTHER_LOADS, SWINGING_FULL)
        # Rows come at one rate; what else the machine does makes them take more or less.
        unit = _total(engine) / TOTAL_LOAD
        cluster.turn_to({str(p): state.recovery.costs.get(p, 0.0) / unit for p in state.recovery.statuses})
        wanted = next_move(cluster)
        if wanted is None:
            return
        name, target, is_assisted = wanted
        partition = Partition.parse(name)
        how = CPAL if is_assisted else DIRECT
        wanted_move = Move(f"swing-{len(self.moved)}", partition.operator, nodes[target], [partition.key_group], how)
        answer = asked(engine, wanted_move, ANSWER_S)
        self.moved.append(Moved(name, homes[name], target, copies[name], answer.took_s, answer.pause_s))


def _total(engine: Engine) -> float:
    return sum(engine.recovery.costs.get(partition, 0.0) for partition in engine.recovery.statuses)
