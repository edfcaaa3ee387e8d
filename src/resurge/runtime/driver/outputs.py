"""The driver's side of the sinks: open them, show committed parts, discard abandoned ones."""

from collections.abc import Iterable, Sequence

from resurge.connectors.contracts import JobReference, Sink, StagedPart
from resurge.model.topology import Topology
from resurge.runtime.worker.messages import SlotReport


class Outputs:
    """All sinks of a topology, by query."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.sinks: dict[str, Sink] = {query.name: query.sink for query in topology.queries.values()}

    def open(self, job: JobReference, committed_epoch: int) -> None:
        """Check every destination, and remove what abandoned attempts left there."""
        for query, sink in self.sinks.items():
            sink.open(query, self.topology.shapes[self.topology.queries[query].operator].schema, job)
            sink.clean(query, committed_epoch)

    def show(self, parts: Iterable[StagedPart]) -> None:
        """Let readers see parts whose commit is logged, in order of epochs."""
        by_query: dict[str, list[StagedPart]] = {}
        for part in parts:
            by_query.setdefault(part.query, []).append(part)
        for query, mine in by_query.items():
            self.sinks[query].publish(sorted(mine, key=lambda part: (part.epoch, part.part)))

    def forget(self, epoch: int) -> None:
        """Tell the sinks that no part up to this epoch is shown again."""
        for query, sink in self.sinks.items():
            sink.forget(query, epoch)

    def discard(self, reports: Iterable[SlotReport]) -> None:
        """Remove what a failed attempt staged."""
        for report in reports:
            for part in report.parts:
                self.sinks[part.query].discard([part])


def without_rows(parts: Sequence[StagedPart]) -> list[StagedPart]:
    """Parts as the journal keeps them: where they are, not what is in them."""
    return [StagedPart(part.query, part.epoch, part.part, part.rows, part.location) for part in parts]
