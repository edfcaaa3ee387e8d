"""Skewed load that shifts: with and without balancing, how even nodes are, how long epochs take and how many rows pass.

Nodes of this benchmark have a share of a core each, so that together they fit into two real ones: a task that used so much
CPU time takes as long as it would on such a node (it waits for the rest). Their work is real CPU time of a real operator,
and a node's utilisation is what it used over what its share allows. The source always has the next epoch, of a fixed number
of rows: rows per second are what the cluster can take, and an epoch's length is how long its rows wait for their results.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import Offset, ReadLimit, Source, SourceLog, SourceReader
from resurge.connectors.frames import bad_frame
from resurge.connectors.sinks import DiscardSink
from resurge.errors import JobError
from resurge.model.topology import Topology
from resurge.operators.keyed_state import value_of
from resurge.planning.key_group_moves import ALGORITHMS, DEFAULT_ALGORITHM, MoveNode, MovePartition, MoveProblem
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.spark_runner import SparkRunner
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.runtime.embedded_cluster.runner import cluster_runner
from resurge.runtime.worker.messages import ROWS, JobPlan, SlotReport
from resurge.telemetry.events import Event, MoveEnded
from resurge.telemetry.log import TelemetryLog

NODES, CPU_SHARE, KEY_GROUPS = 4, 0.2, 64
KEYS, ZIPF, SEED = 2_000, 1.25, 11
"""The most frequent key has a quarter of all rows: as much as a node may have, were all nodes alike."""
ROWS_PER_EPOCH, SPLITS = 150_000, 4
WARM_UP_S = 25.0
EVEN_WITHIN_S = 30.0
EVEN = 1.2
SMOOTHED_EPOCHS = 5


@dataclass
class Phases:
    """Keys change their places when the next phase begins; the clock starts with the first question."""

    phase_s: float
    changes: int
    began_s: float | None = None

    def at(self, now_s: float) -> int:
        """The phase of a moment: 0 is the warm-up."""
        since_s = now_s - (self.began_s if self.began_s is not None else now_s)
        return 0 if since_s < WARM_UP_S else 1 + int((since_s - WARM_UP_S) / self.phase_s)

    def starts_s(self, phase: int) -> float:
        """When a phase began; the first one begins without a change of places behind it."""
        assert self.began_s is not None
        return self.began_s + WARM_UP_S + (phase - 1) * self.phase_s

    def ask(self) -> int | None:
        """The phase now, None when all are over."""
        if self.began_s is None:
            self.began_s = time.time()
        phase = self.at(time.time())
        return phase if phase <= self.changes else None


@dataclass(frozen=True)
class ShiftingKeys(Source):
    """Rows with Zipf keys; in each phase other keys are the frequent ones."""

    phases: Phases

    def schema(self) -> pl.Schema:
        """A key and a value."""
        return pl.Schema({"key": pl.Int64(), "value": pl.Float64()})

    def reader(self, log: SourceLog) -> "ShiftingReader":
        """A reader that asks the clock on the driver only."""
        return ShiftingReader(self.phases)


class ShiftingReader(SourceReader):
    """Offsets say how many rows there were, and in which phase the last of them were read."""

    def __init__(self, phases: Phases | None) -> None:
        self.phases = phases

    def __getstate__(self) -> dict[str, Any]:
        return {"phases": None}

    def initialOffset(self) -> Offset:
        """Nothing read."""
        return {"rows": 0, "phase": 0}

    def latest_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """One more epoch's rows, as long as there is a phase."""
        assert self.phases is not None
        phase = self.phases.ask()
        return start if phase is None else {"rows": start["rows"] + ROWS_PER_EPOCH, "phase": phase}

    def partitions(self, start: Offset, end: Offset) -> Sequence[tuple[int, int, int]]:
        """As many splits as nodes."""
        cuts = [start["rows"] + (end["rows"] - start["rows"]) * index // SPLITS for index in range(SPLITS + 1)]
        return [(low, high, end["phase"]) for low, high in pairwise(cuts) if high > low]

    def read_frames(self, partition: tuple[int, int, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of a split: a pure function of it."""
        first, last, phase = partition
        rng = np.random.default_rng([SEED, first])
        ranks = np.searchsorted(_cumulative(), rng.random(last - first))
        keys = np.random.default_rng([SEED, phase, KEYS]).permutation(KEYS)[ranks]
        return pl.DataFrame({"key": keys, "value": rng.random(last - first)}), bad_frame([])

    def rows_between(self, start: Offset, end: Offset) -> int:
        """How many rows an epoch has."""
        return int(end["rows"]) - int(start["rows"])


def _cumulative() -> "np.ndarray[Any, np.dtype[np.float64]]":
    weights = np.arange(1, KEYS + 1, dtype=np.float64) ** -ZIPF
    return np.asarray(np.cumsum(weights / weights.sum()))


class Scores:
    """A running mean and spread per key, and rows far from them: a model per key, as fraud or fault detection has it."""

    def on_row(self, key: tuple[int], row: Mapping[str, Any], state: Any, timers: Any) -> Any:
        """Welford's update; a row that deviates much comes out."""
        seen, mean, spread = (state["seen"] or 0) + 1, state["mean"] or 0.0, state["spread"] or 0.0
        distance = row["value"] - mean
        mean += distance / seen
        spread += distance * (row["value"] - mean)
        state["seen"], state["mean"], state["spread"] = seen, mean, spread
        if seen > 100 and distance * distance * seen > 2.9 * spread:
            yield {"key": key[0], "value": row["value"]}


def scoring(phases: Phases) -> Topology:
    """One stateful operator whose cost follows its rows."""
    job = TopologyBuilder("balance", key_groups=KEY_GROUPS)
    rows = job.source("rows", ShiftingKeys(phases))
    made = {"key": pl.Int64, "value": pl.Float64}
    state = {"seen": value_of(pl.Int64()), "mean": value_of(pl.Float64()), "spread": value_of(pl.Float64())}
    rows.process("scores", Scores, key="key", schema=made, state=state).query(sink=DiscardSink())
    return job.build()


@dataclass(frozen=True)
class Epoch:
    """One live epoch: when it ended, how long it took, what each node used of its share, and the rows of each key group."""

    ended_s: float
    took_s: float
    used_s: Mapping[str, float]
    rows: Mapping[int, int]

    @property
    def imbalance(self) -> float:
        """The highest over the mean utilisation."""
        return max(self.used_s.values()) / statistics.fmean(self.used_s.values())


class RecordingRunner(SparkRunner):
    """Notes what every epoch cost each node."""

    epochs: list[Epoch]

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Run, and note live epochs."""
        began_s = time.time()
        reports = super().run(plan)
        if plan.epochs:
            self.epochs.append(_epoch(plan, reports, began_s))
        return reports


def _epoch(plan: JobPlan, reports: Sequence[SlotReport], began_s: float) -> Epoch:
    used_s: dict[str, float] = {}
    rows: dict[int, int] = {}
    for report in reports:
        slot = plan.slots[report.slot]
        used_s[slot.node] = used_s.get(slot.node, 0.0) + report.cpu_s / slot.cpu_share
        for cohort in report.cohorts:
            rows |= dict(zip(cohort.key_groups, np.frombuffer(cohort.rows_in, ROWS).tolist(), strict=True))
    return Epoch(time.time(), time.time() - began_s, used_s, rows)


@dataclass
class Run:
    """What one run showed."""

    phases: Phases
    epochs: Sequence[Epoch]
    moves: list[MoveEnded] = field(default_factory=list)

    def of_phase(self, phase: int) -> list[Epoch]:
        """The epochs that ended in a phase."""
        return [epoch for epoch in self.epochs if self.phases.at(epoch.ended_s) == phase]

    @property
    def measured(self) -> list[Epoch]:
        """All epochs after the warm-up."""
        return [epoch for phase in range(1, self.phases.changes + 1) for epoch in self.of_phase(phase)]


def settled(run: Run, phase: int) -> list[Epoch]:
    """The epochs of a phase from 30 seconds after its beginning on."""
    return [epoch for epoch in run.of_phase(phase) if epoch.ended_s >= run.phases.starts_s(phase) + EVEN_WITHIN_S]


def even_after_s(run: Run, phase: int) -> float | None:
    """How long after the beginning of a phase the median imbalance of some epochs was low for the first time; None if never."""
    epochs = run.of_phase(phase)
    for index in range(SMOOTHED_EPOCHS - 1, len(epochs)):
        recent = epochs[index - SMOOTHED_EPOCHS + 1 : index + 1]
        if statistics.median(epoch.imbalance for epoch in recent) <= EVEN:
            return recent[-1].ended_s - run.phases.starts_s(phase)
    return None


def ideal_imbalance(rows: Mapping[int, int]) -> float:
    """What the planner of moves reaches if moves cost nothing: a key group cannot be split, nor can a key."""
    nodes = {str(node): MoveNode(1.0) for node in range(NODES)}
    total = sum(rows.values())
    partitions = {f"scores/{group}": MovePartition(str(group % NODES), count / total) for group, count in rows.items()}
    return ALGORITHMS[DEFAULT_ALGORITHM](MoveProblem(nodes, partitions, move_cost=0.0)).imbalance


def figures(run: Run) -> dict[str, Any]:
    """The figures of one run."""
    measured = run.measured
    if not measured or any(not settled(run, phase) for phase in range(1, run.phases.changes + 1)):
        raise JobError("some phase had no epoch 30 s after its beginning; expected longer phases, or a machine that is less busy")
    phases = range(1, run.phases.changes + 1)
    imbalance = [statistics.median(epoch.imbalance for epoch in settled(run, phase)) for phase in phases]
    after = [even_after_s(run, phase) for phase in phases]
    return {
        "imbalance": round(max(imbalance), 3),
        "p99_s": round(float(np.percentile([epoch.took_s for epoch in measured], 99)), 3),
        "rows_per_s": round(ROWS_PER_EPOCH * len(measured) / (run.phases.phase_s * run.phases.changes)),
        "imbalance_by_phase": [round(value, 3) for value in imbalance],
        "even_after_s": [None if value is None else round(value, 1) for value in after],
        "moved": sum(move.moved for move in run.moves),
        "longest_pause_s": round(max((move.pause_s for move in run.moves), default=0.0), 3),
    }


def measure(phase_s: float, changes: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """The same load without and with balancing, one after the other on one cluster."""
    runs = {}
    with EmbeddedCluster(NODES, cpu_share=CPU_SHARE) as cluster, cluster_runner(cluster, "balance") as first:
        for name, balance in (("unbalanced", "off"), ("balanced", "auto")):
            progress(f"{name}: {WARM_UP_S + phase_s * changes:.0f} s")
            runs[name] = _run(first, Phases(phase_s, changes), balance)
    balanced, unbalanced = figures(runs["balanced"]), figures(runs["unbalanced"])
    ideal = [ideal_imbalance(_total_rows(runs["balanced"].of_phase(phase))) for phase in range(1, changes + 1)]
    return {
        "nodes": NODES,
        "cpu_share": CPU_SHARE,
        "key_groups": KEY_GROUPS,
        "zipf": ZIPF,
        "phase_s": phase_s,
        "balanced": balanced,
        "unbalanced": unbalanced,
        "hash_ideal": round(max(ideal), 3),
        "throughput_ratio": round(balanced["rows_per_s"] / unbalanced["rows_per_s"], 3),
    }


def _total_rows(epochs: Sequence[Epoch]) -> dict[int, int]:
    total: dict[int, int] = {}
    for epoch in epochs:
        for group, rows in epoch.rows.items():
            total[group] = total.get(group, 0) + rows
    return total


def _run(first: SparkRunner, phases: Phases, balance: str) -> Run:
    runner = RecordingRunner(first.spark, first.cpu_share, first.node_names)
    runner.epochs = []
    telemetry, run = TelemetryLog(), Run(phases, runner.epochs)

    def note(event: Event) -> None:
        if isinstance(event, MoveEnded):
            run.moves.append(event)

    telemetry.listeners.append(note)
    with tempfile.TemporaryDirectory(prefix="resurge-bench-") as folder:
        # Every epoch has the same rows, so that its length says what the fullest node needs for them.
        options = RunOptions(folder, interval_s=0, back_pressure=False, balance=balance)
        run_until_done(Engine(scoring(phases), runner, options, telemetry), until_idle=True)
    return run
