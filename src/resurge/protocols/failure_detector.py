"""Who is dead: a node that has been silent for much longer than is its habit. Pure; one table has all transitions.

The driver asks every node again and again whether it is there. A node that runs answers within milliseconds, a busy one within
its usual time, a stopped one not at all. How long a node may be silent follows from the longest pauses that it made lately.
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


class Sign(Enum):
    """What was seen of a node."""

    HEARD = "heard"
    LATE = "late"
    SILENT = "silent"
    GONE = "gone"


TRANSITIONS = {
    (Health.HEALTHY, Sign.HEARD): Health.HEALTHY,
    (Health.HEALTHY, Sign.LATE): Health.SUSPECTED,
    (Health.HEALTHY, Sign.SILENT): Health.DEAD,
    (Health.HEALTHY, Sign.GONE): Health.DEAD,
    (Health.SUSPECTED, Sign.HEARD): Health.HEALTHY,
    (Health.SUSPECTED, Sign.LATE): Health.SUSPECTED,
    (Health.SUSPECTED, Sign.SILENT): Health.DEAD,
    (Health.SUSPECTED, Sign.GONE): Health.DEAD,
    # A node that was declared dead is never used again under its name, whatever it still says.
    (Health.DEAD, Sign.HEARD): Health.DEAD,
    (Health.DEAD, Sign.GONE): Health.DEAD,
}


@dataclass(frozen=True)
class Patience:
    """How long silence may last: at least `least_s`, more for a node that often pauses, at most `most_s`."""

    least_s: float = 4.0
    most_s: float = 20.0
    times_usual: float = 4.0
    late_s: float = 1.5
    longest_look_s: float = 1.0
    forgetting: float = 0.98

    def allowed_s(self, usual_s: float) -> float:
        """The silence after which a node with such a habit is dead."""
        return min(max(self.least_s, self.least_s / 2 + self.times_usual * usual_s), self.most_s)


@dataclass(frozen=True)
class Pulse:
    """One node: what is believed of it, since when it is silent, and its usual longest silence."""

    health: Health
    silence_s: float = 0.0
    usual_s: float = 0.0

    def after(self, sign: Sign) -> "Pulse":
        """The pulse after a sign that the table allows."""
        found = TRANSITIONS.get((self.health, sign))
        if found is None:
            accepted = ", ".join(other.name for health, other in TRANSITIONS if health is self.health)
            raise ProtocolError(f"a node that is {self.health.name} cannot handle {sign.name}; it accepts {accepted}")
        return replace(self, health=found)


@dataclass(frozen=True)
class Watch:
    """All nodes that are watched."""

    patience: Patience = Patience()
    pulses: Mapping[NodeId, Pulse] = field(default_factory=dict)
    looked_s: float | None = None

    def watching(self, nodes: Iterable[NodeId]) -> "Watch":
        """The watch over these nodes; new ones are healthy, others are forgotten."""
        return replace(self, pulses={node: self.pulses.get(node, Pulse(Health.HEALTHY)) for node in nodes})

    def looked(self, heard: Iterable[NodeId], now_s: float) -> "Watch":
        """The watch after one look at who has answered since the last one."""
        passed_s = now_s - self.looked_s if self.looked_s is not None else 0.0
        # If the driver itself stood still, nobody could answer meanwhile.
        counted_s = min(max(passed_s, 0.0), self.patience.longest_look_s)
        answered = frozenset(heard)
        pulses = {node: self._looked(pulse, node in answered, counted_s) for node, pulse in self.pulses.items()}
        return replace(self, pulses=pulses, looked_s=now_s)

    def _looked(self, pulse: Pulse, is_heard: bool, counted_s: float) -> Pulse:
        if pulse.health is Health.DEAD:
            return pulse
        if is_heard:
            usual_s = max(pulse.silence_s, pulse.usual_s * self.patience.forgetting)
            return replace(pulse.after(Sign.HEARD), silence_s=0.0, usual_s=usual_s)
        silent = replace(pulse, silence_s=pulse.silence_s + counted_s)
        if silent.silence_s >= self.patience.allowed_s(pulse.usual_s):
            return silent.after(Sign.SILENT)
        late_s = max(self.patience.late_s, 2 * pulse.usual_s)
        return silent.after(Sign.LATE) if silent.silence_s >= late_s else silent

    def gone(self, nodes: Iterable[NodeId]) -> "Watch":
        """The watch after Spark itself told that nodes are lost."""
        lost = frozenset(nodes)
        return replace(self, pulses={node: p.after(Sign.GONE) if node in lost else p for node, p in self.pulses.items()})

    def of(self, health: Health) -> dict[NodeId, Pulse]:
        """The nodes of which this is believed."""
        return {node: pulse for node, pulse in self.pulses.items() if pulse.health is health}
