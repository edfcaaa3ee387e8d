"""What a simulated driver tells about itself: the same events as a real one, in virtual time."""

from collections.abc import Iterable, Mapping

from resurge import narration
from resurge.model.names import Partition
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Facts
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
        self.narrator = narration.Narrator()
        self._showing: dict[str, list[Partition]] = {query: [] for query in workload.priorities}
        for query, partition in workload.outputs.items():
            self._showing[query_name(query, workload.priorities)].append(partition)

    def started(self, now_s: float, facts: Facts) -> None:
        """A driver began."""
        self.narrator.started(is_new=self.journal.generation == 1)
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
        outputs = {query: partitions[0].operator for query, partitions in self._showing.items()}
        self.telemetry.write(narration.described_graph(now_s, workload.graph, outputs))

    def changed(self, now_s: float, before: Facts, after: Facts) -> None:
        """Nodes or partitions changed."""
        self._tell(self.narrator.changed(now_s, before, after))

    def committed(self, now_s: float, facts: Facts) -> None:
        """Output was shown: who is in step with the stream is back."""
        self._tell(self.narrator.committed(now_s, facts))

    def planned(self, now_s: float, before: Facts, after: Facts) -> None:
        """The planner chose what comes back; planning takes no virtual time."""
        self._tell(narration.planned(now_s, before, after, 0.0))
        self._tell(self.narrator.load(now_s, after, lambda: after))

    def killed(self, now_s: float, nodes: Iterable[str]) -> None:
        """Nodes die; nobody knows yet."""
        self.telemetry.write(events.NodesKilled(now_s, sorted(nodes)))

    def _tell(self, told: Iterable[events.Event]) -> None:
        for event in told:
            self.telemetry.write(event)

    def epoch(self, now_s: float, took_s: float, before: Facts, after: Facts, *, rows: Mapping[str, int]) -> None:
        """A live epoch was committed; `rows` has `read`, `lag` and, where epochs are limited, `limit`."""
        self.committed(now_s, after)
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
        self._tell(self.narrator.load(now_s, after, lambda: after))

    def catch_up(
        self, now_s: float, took_s: float, step: CatchUp, before: Facts, after: Facts, *, restore_s: float, is_joined: bool
    ) -> None:
        """Partitions that were behind took a step."""
        latencies = {query: times for query, times in self._latencies(now_s, before, after).items() if times}
        epochs, counts = step.epochs, (len(step.partitions), len(step.shadows), len(step.buffered))
        told = events.CatchUpFinished(now_s, epochs[0], epochs[-1], took_s, *counts, latencies, restore_s, is_joined)
        self.telemetry.write(told)

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
