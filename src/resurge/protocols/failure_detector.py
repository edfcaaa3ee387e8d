"""Which nodes are dead: those that have not answered for their time-out. Pure; one table has all transitions.

The driver pings every node several times a second. A healthy node answers within milliseconds, a busy one within its usual
time, a stopped one not at all. The time-out of a node follows from its longest recent pauses.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from resurge.errors import ProtocolError
from resurge.model.names import NodeId


class Health(Enum):
    """What is believed of a node."""

    HEALTHY = "healthy"
    SUSPECTED = "suspected"
    DEAD = "dead"


class Signal(Enum):
    """What a poll, or Spark, says of a node."""

    ANSWERED = "answered"
    LATE = "late"
    TIMED_OUT = "timed out"
    REMOVED = "removed by Spark"


TRANSITIONS = {
    (Health.HEALTHY, Signal.ANSWERED): Health.HEALTHY,
    (Health.HEALTHY, Signal.LATE): Health.SUSPECTED,
    (Health.HEALTHY, Signal.TIMED_OUT): Health.DEAD,
    (Health.HEALTHY, Signal.REMOVED): Health.DEAD,
    (Health.SUSPECTED, Signal.ANSWERED): Health.HEALTHY,
    (Health.SUSPECTED, Signal.LATE): Health.SUSPECTED,
    (Health.SUSPECTED, Signal.TIMED_OUT): Health.DEAD,
    (Health.SUSPECTED, Signal.REMOVED): Health.DEAD,
    # A node that was declared dead is never used again under its name, whatever it still says.
    (Health.DEAD, Signal.ANSWERED): Health.DEAD,
    (Health.DEAD, Signal.REMOVED): Health.DEAD,
}


@dataclass(frozen=True)
class Timeouts:
    """How long a node may leave pings unanswered: at least `least_s`, more for a node that often pauses, at most `most_s`."""

    least_s: float = 4.0
    most_s: float = 20.0
    times_usual: float = 4.0
    late_s: float = 1.5
    longest_poll_s: float = 1.0
    """At most this much counts as unanswered between two polls: a driver that stood still cannot blame its nodes."""
    forgetting: float = 0.98
    """The longest pause fades by this factor with every answer."""

    def timeout_s(self, usual_s: float) -> float:
        """The time-out of a node whose longest recent pause is `usual_s`."""
        return min(max(self.least_s, self.least_s / 2 + self.times_usual * usual_s), self.most_s)


@dataclass(frozen=True)
class NodeHealth:
    """One node: its health, for how long it has not answered, and its longest recent pause."""

    health: Health
    unanswered_s: float = 0.0
    usual_s: float = 0.0

    def after(self, signal: Signal) -> "NodeHealth":
        """The health after a signal, by the table."""
        found = TRANSITIONS.get((self.health, signal))
        if found is None:
            accepted = ", ".join(other.name for health, other in TRANSITIONS if health is self.health)
            raise ProtocolError(f"a node that is {self.health.name} cannot handle {signal.name}; it accepts {accepted}")
        return replace(self, health=found)


@dataclass(frozen=True)
class FailureDetector:
    """All nodes that are watched."""

    timeouts: Timeouts = Timeouts()
    nodes: Mapping[NodeId, NodeHealth] = field(default_factory=dict)
    polled_s: float | None = None

    def watching(self, nodes: Iterable[NodeId]) -> "FailureDetector":
        """The detector for these nodes; new ones are healthy, others are forgotten."""
        return replace(self, nodes={node: self.nodes.get(node, NodeHealth(Health.HEALTHY)) for node in nodes})

    def polled(self, answering: Iterable[NodeId], now_s: float) -> "FailureDetector":
        """The detector after one poll, given the nodes that have answered since the last one."""
        passed_s = now_s - self.polled_s if self.polled_s is not None else 0.0
        # If the driver itself stood still, nobody could answer meanwhile.
        counted_s = min(max(passed_s, 0.0), self.timeouts.longest_poll_s)
        answered = frozenset(answering)
        nodes = {node: self._polled(known, node in answered, counted_s) for node, known in self.nodes.items()}
        return replace(self, nodes=nodes, polled_s=now_s)

    def _polled(self, known: NodeHealth, has_answered: bool, counted_s: float) -> NodeHealth:
        if known.health is Health.DEAD:
            return known
        if has_answered:
            usual_s = max(known.unanswered_s, known.usual_s * self.timeouts.forgetting)
            return replace(known.after(Signal.ANSWERED), unanswered_s=0.0, usual_s=usual_s)
        waited = replace(known, unanswered_s=known.unanswered_s + counted_s)
        if waited.unanswered_s >= self.timeouts.timeout_s(known.usual_s):
            return waited.after(Signal.TIMED_OUT)
        late_s = max(self.timeouts.late_s, 2 * known.usual_s)
        return waited.after(Signal.LATE) if waited.unanswered_s >= late_s else waited

    def removed(self, nodes: Iterable[NodeId]) -> "FailureDetector":
        """The detector after Spark removed nodes."""
        lost = frozenset(nodes)
        return replace(self, nodes={node: p.after(Signal.REMOVED) if node in lost else p for node, p in self.nodes.items()})

    def of(self, health: Health) -> dict[NodeId, NodeHealth]:
        """The nodes with this health."""
        return {node: known for node, known in self.nodes.items() if known.health is health}
