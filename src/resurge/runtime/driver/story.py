"""What the engine tells about itself: events for the telemetry log."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from resurge.connectors.contracts import StagedPart
from resurge.coordinator import narration
from resurge.operators.program import Program
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Facts
from resurge.runtime.driver.ledger import Ledger
from resurge.runtime.driver.resume import Resumption
from resurge.runtime.worker.messages import SlotReport
from resurge.storage.journal import EpochPlanned
from resurge.telemetry import events
from resurge.telemetry.log import TelemetryLog

if TYPE_CHECKING:
    from resurge.runtime.driver.engine import Engine


class Took(NamedTuple):
    """What a step of catching up took: seconds in all, and of them restoring; buffers replayed; and with the next epoch or alone."""

    seconds: float
    restore_s: float
    replays: int
    is_joined: bool


class Story:
    """Turns changes of facts into events."""

    def __init__(self, telemetry: TelemetryLog, program: Program, ledger: Ledger) -> None:
        self.telemetry = telemetry
        self.program = program
        self.ledger = ledger
        self.narrator = narration.Narrator()
        self.before: Facts | None = None

    def started(self, engine: "Engine", found: Resumption) -> None:
        """A driver began."""
        self.narrator.started(is_new=engine.journal.generation == 1)
        topology = self.program.topology
        priorities = {query.name: query.priority for query in topology.queries.values()}
        self.telemetry.write(
            events.JobStarted(
                time.time(),
                topology.name,
                engine.journal.generation,
                engine.runner.master,
                sorted(engine.facts.capacity),
                priorities,
                topology.key_groups,
                found.committed_epoch,
                found.checkpoint_epoch,
            )
        )
        self.telemetry.write(narration.described(time.time(), topology))
        for warning in found.warnings:
            self.telemetry.write(events.Warned(time.time(), warning))

    def resumed(self, ledger: Ledger, before: Facts, after: Facts, warnings: Iterable[str]) -> None:
        """The driver went back to an older checkpoint."""
        self.ledger = ledger
        for warning in warnings:
            self.telemetry.write(events.Warned(time.time(), warning))
        self.changed(before, after)

    def changed(self, before: Facts, after: Facts) -> None:
        """Nodes or partitions changed."""
        self._tell(self.narrator.changed(time.time(), before, after))

    def committed(self, facts: Facts) -> None:
        """Rows were shown, or there were none to show: who is in step with the stream is back."""
        self._tell(self.narrator.committed(time.time(), facts))

    def planned(self, before: Facts, after: Facts, took_s: float, strategy: str) -> None:
        """The planner chose what comes back."""
        self._tell(narration.planned(time.time(), before, after, took_s, strategy))

    def loaded(self, engine: "Engine") -> None:
        """What operators and nodes have to do now."""
        facts, buffers = engine.facts, engine.versions.buffers
        buffered_bytes = sum(buffer.size_bytes for buffer in buffers)
        self._tell(self.narrator.load(time.time(), facts, lambda: engine.membership.with_costs(facts), buffered_bytes))

    def _tell(self, told: Iterable[events.Event]) -> None:
        for event in told:
            self.telemetry.write(event)

    def epoch(self, engine: "Engine", planned: EpochPlanned, reports: list[SlotReport], took_s: float) -> None:
        """A live epoch was committed."""
        self.committed(engine.facts)
        now = time.time()
        rows = dict.fromkeys(self.program.topology.queries, 0)
        for report in reports:
            for part in report.parts:
                # Parts of earlier epochs are those of a step in the same job, which has an event of its own.
                if part.epoch == planned.epoch:
                    rows[part.query] += part.rows
        late: dict[str, int] = {}
        for report in reports:
            for cohort in report.cohorts:
                if cohort.late_rows:
                    late[cohort.operator] = late.get(cohort.operator, 0) + cohort.late_rows
        before = self.before or engine.facts
        latencies = {query: times[-1] for query, times in self._latencies(before, engine.facts, now).items() if times}
        state_rows, state_bytes = engine.versions.size()
        levels = range(self.program.levels)
        self.telemetry.write(
            events.EpochFinished(
                now,
                planned.epoch,
                sum(report.rows_read for report in reports),
                took_s,
                planned.arrival_s,
                rows,
                latencies,
                state_rows,
                state_bytes,
                late,
                sum(report.bad_rows for report in reports),
                engine.sources.lag_rows(engine.reached),
                engine.limit,
                {f"level {level}": sum(r.cpu_s for r in reports if r.level == level) for level in levels},
            )
        )
        self.loaded(engine)

    def catch_up(self, engine: "Engine", step: CatchUp, parts: Iterable[StagedPart], took: Took) -> None:
        """Partitions that were behind took a step and published these parts."""
        now = time.time()
        published: dict[str, dict[int, int]] = {}
        for part in parts:
            epochs = published.setdefault(part.query, {})
            epochs[part.epoch] = epochs.get(part.epoch, 0) + part.rows
        before = self.before or engine.facts
        self.telemetry.write(
            events.CatchUpFinished(
                now,
                step.epochs[0],
                step.epochs[-1],
                took.seconds,
                len(step.partitions),
                len(step.shadows),
                took.replays,
                {query: times for query, times in self._latencies(before, engine.facts, now).items() if times},
                took.restore_s,
                took.is_joined,
                published,
            )
        )
        self.loaded(engine)

    def _latencies(self, before: Facts, after: Facts, now: float) -> dict[str, list[float]]:
        """For each query the latencies of the epochs that it has now shown in full; an epoch is shown when all partitions did."""
        found: dict[str, list[float]] = {}
        for query, numbers in self.program.query_nodes.items():
            owners = {owner for owner in map(self.program.owner, numbers) if owner is not None}
            if not owners:
                epochs = range(before.head + 1, after.head + 1)
            else:
                mine = [partition for partition in after.graph.upstream if partition.operator in owners]
                first = min(before.standing[partition].shown for partition in mine)
                epochs = range(first + 1, min(after.standing[partition].shown for partition in mine) + 1)
            found[query] = [now - self.ledger.arrival_s(epoch) for epoch in epochs if epoch in self.ledger.planned]
        return found

    def checkpointed(self, before: Facts, after: Facts, took_s: float) -> None:
        """A global checkpoint was published."""
        self.telemetry.write(events.CheckpointFinished(time.time(), after.checkpoint, took_s))
        self.changed(before, after)

    def waiting(self, facts: Facts) -> None:
        """There is no node."""
        self.telemetry.write(events.WaitingForNodes(time.time(), facts.head))
