"""What a simulated driver tells about itself: the same events as a real one, in virtual time."""

from collections.abc import Mapping

from resurge.model.names import Partition
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Facts, Phase
from resurge.simulator.journal import Journal
from resurge.simulator.workload import Workload, query_name
from resurge.telemetry import events
from resurge.telemetry.log import TelemetryLog


class Story:
    """Turns changes of facts into events."""

    def __init__(self, telemetry: TelemetryLog, workload: Workload, journal: Journal) -> None:
        self.telemetry = telemetry
        self.workload = workload
        self.journal = journal
        self._showing: dict[str, list[Partition]] = {query: [] for query in workload.priorities}
        for query, partition in workload.outputs.items():
            self._showing[query_name(query, workload.priorities)].append(partition)

    def started(self, now_s: float, facts: Facts) -> None:
        """A driver began."""
        workload, journal = self.workload, self.journal
        nodes = sorted(str(node) for node in facts.capacity)
        self.telemetry.write(
            events.JobStarted(
                now_s,
                workload.name,
                journal.generation,
                "simulator",
                nodes,
                dict(workload.priorities),
                workload.key_groups,
                journal.head,
                journal.checkpoint,
            )
        )

    def changed(self, now_s: float, before: Facts, after: Facts) -> None:
        """Nodes or partitions changed."""
        for node in sorted(set(before.capacity) - set(after.capacity)):
            count = sum(known.node == node for known in before.standing.values())
            self.telemetry.write(events.NodeLost(now_s, node, count, after.is_buffering))
        for node in sorted(set(after.capacity) - set(before.capacity)):
            self.telemetry.write(events.NodeJoined(now_s, node, round(after.capacity[node], 4)))
        if before.is_buffering != after.is_buffering:
            self.telemetry.write(events.BufferingSwitched(now_s, after.head, after.is_buffering))
        if before.standing is after.standing:
            return
        was, is_live = before.live_queries(), after.live_queries()
        if was != is_live:
            self.telemetry.write(events.QueriesChanged(now_s, after.head, sorted(was - is_live), sorted(is_live - was)))

    def planned(self, now_s: float, before: Facts, after: Facts) -> None:
        """The planner chose what comes back; planning takes no virtual time."""
        scheduled = {
            str(partition): str(known.node)
            for partition, known in after.standing.items()
            if known.phase is Phase.CATCHING_UP and before.standing[partition].phase is not Phase.CATCHING_UP
        }
        if not scheduled:
            return
        up = frozenset(after.of_phase(Phase.LIVE, Phase.CATCHING_UP))
        live = before.live_queries()
        queries = sorted(name for name, need in after.graph.queries.items() if name not in live and need.partitions <= up)
        self.telemetry.write(events.RecoveryPlanned(now_s, queries, scheduled, 0.0))

    def epoch(self, now_s: float, took_s: float, before: Facts, after: Facts, *, rows: Mapping[str, int]) -> None:
        """A live epoch was committed; `rows` has `read`, `lag` and, where epochs are limited, `limit`."""
        planned = self.journal.planned[after.head]
        latencies = {query: times[-1] for query, times in self._latencies(now_s, before, after).items() if times}
        self.telemetry.write(
            events.EpochFinished(
                now_s,
                after.head,
                rows["read"],
                took_s,
                planned.arrival_s,
                {query: 1 if query in latencies else 0 for query in self._showing},
                latencies,
                0,
                0,
                {},
                0,
                rows["lag"],
                rows.get("limit"),
                {},
            )
        )

    def catch_up(self, now_s: float, took_s: float, step: CatchUp, before: Facts, after: Facts) -> None:
        """Partitions that were behind took a step."""
        latencies = {query: times for query, times in self._latencies(now_s, before, after).items() if times}
        self.telemetry.write(
            events.CatchUpFinished(
                now_s, step.first, step.last, took_s, len(step.partitions), len(step.shadows_until), len(step.buffered), latencies
            )
        )

    def _latencies(self, now_s: float, before: Facts, after: Facts) -> dict[str, list[float]]:
        """For each query the latencies of the epochs that it has now shown in full."""
        found: dict[str, list[float]] = {}
        for query, partitions in self._showing.items():
            first = min(before.standing[partition].shown for partition in partitions)
            last = min(after.standing[partition].shown for partition in partitions)
            epochs = range(first + 1, last + 1)
            found[query] = [now_s - self.journal.planned[epoch].arrival_s for epoch in epochs if epoch in self.journal.planned]
        return found

    def checkpointed(self, now_s: float, took_s: float, before: Facts, after: Facts) -> None:
        """A global checkpoint was published."""
        self.telemetry.write(events.CheckpointFinished(now_s, after.checkpoint, took_s))
        self.changed(now_s, before, after)

    def waiting(self, now_s: float, facts: Facts) -> None:
        """There is no node."""
        self.telemetry.write(events.WaitingForNodes(now_s, facts.head))

    def stopped(self, now_s: float, facts: Facts, reason: str) -> None:
        """The driver ended."""
        self.telemetry.write(events.JobStopped(now_s, facts.head, reason))
