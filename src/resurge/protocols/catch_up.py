"""Where the input of partitions that catch up comes from: their own upstream, buffers, or shadows. Pure.

A partition that catches up needs what each upstream partition produced in each epoch after its cursor. If the upstream
partition will itself process that epoch in the same catch-up, it provides it. If it is ahead, the output is in a buffer; where
there is none, the upstream partition is replayed as a shadow, from the last global checkpoint, touching nothing live.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from resurge.model.names import NodeId, Partition
from resurge.protocols.recovery import Facts, Phase

MOST_EPOCHS_PER_STEP = 16
SHARE_OF_LATENCY = 0.15
FLIGHT_INTERVALS = 1.6
PRESSING = 4
LEAST_EPOCHS_PER_STEP = 2
"""One live epoch may pass between two steps, so that steps of one epoch would never come nearer to the head."""

Pair = tuple[Partition, Partition]
Coverage = Mapping[Pair, frozenset[int]]
"""The epochs whose output from one partition for another is buffered on a node that is up."""


@dataclass(frozen=True)
class CatchUp:
    """One bounded step: the epochs that each partition takes, and each shadow; and what is sent again from buffers.

    Everyone goes on from where it is, so that those who are nearest to the head meet it first. A shadow is needed until an
    epoch; shadows that are kept go on from where they are, all others begin anew at the last global checkpoint.
    """

    partitions: Mapping[Partition, range]
    shadows: Mapping[Partition, range] = field(default_factory=dict)
    buffered: Mapping[Pair, range] = field(default_factory=dict)
    shadows_kept: frozenset[Partition] = frozenset()

    @property
    def epochs(self) -> list[int]:
        """The epochs that somebody takes."""
        return sorted({epoch for taken in (*self.partitions.values(), *self.shadows.values()) for epoch in taken})

    @property
    def longest(self) -> int:
        """How many epochs those take who take most."""
        return max(map(len, (*self.partitions.values(), *self.shadows.values())), default=0)

    def cursors(self) -> dict[Partition, int]:
        """Where each partition is afterwards."""
        return {partition: taken[-1] for partition, taken in self.partitions.items()}


def next_step(
    facts: Facts,
    coverage: Coverage,
    shadows: Mapping[Partition, int],
    most_epochs: int = MOST_EPOCHS_PER_STEP,
    more_epochs: Mapping[Partition, int] | None = None,
) -> CatchUp | None:
    """The next step, or None if nobody is behind: everyone takes at most so many epochs, and some may take more.

    `shadows` are the cursors of those that exist.
    """
    catching = [p for p in facts.of_phase(Phase.CATCHING_UP) if facts.standing[p].cursor < facts.head]
    if not catching:
        return None
    until = shadows_needed(facts, coverage, frozenset(catching))
    kept = _kept(facts, until, shadows, frozenset(catching))
    more = more_epochs or {}
    taken = {p: _after(facts.standing[p].cursor, facts.head, more.get(p, most_epochs)) for p in catching}
    replayed = {
        p: _after(kept.get(p, facts.checkpoint), last, most_epochs)
        for p, last in until.items()
        if kept.get(p, facts.checkpoint) < last
    }
    is_settled = False
    while not is_settled:
        before = (dict(taken), dict(replayed))
        for partition, upstream in facts.graph.upstream.items():
            for mine in (replayed, taken):
                if partition in mine:
                    mine[partition] = _fed(facts, upstream, mine[partition], until, replayed, taken)
        for below, upstream in facts.graph.upstream.items():
            for above in upstream & replayed.keys():
                for mine in (replayed, taken):
                    if below in mine:
                        replayed[above] = _not_ahead(replayed[above], mine[below], until[above])
        is_settled = before == (taken, replayed)
    partitions = {partition: epochs for partition, epochs in taken.items() if epochs}
    return CatchUp(
        partitions,
        {partition: epochs for partition, epochs in replayed.items() if epochs},
        dict(_from_buffers(facts, partitions, until)),
        frozenset(kept),
    )


def _after(cursor: int, last: int, most_epochs: int) -> range:
    return range(cursor + 1, min(last, cursor + most_epochs) + 1)


def _not_ahead(shadow: range, receiver: range, until: int) -> range:
    """A shadow does not pass an epoch that a receiver needs from it and does not take now: it would have to begin anew."""
    if receiver.start > until or receiver.start >= shadow.stop:
        return shadow
    return range(shadow.start, max(shadow.start, min(shadow.stop, receiver.stop)))


def _fed(
    facts: Facts,
    upstream: Iterable[Partition],
    wanted: range,
    until: Mapping[Partition, int],
    replayed: Mapping[Partition, range],
    taken: Mapping[Partition, range],
) -> range:
    """As much of the wanted epochs as all upstream partitions provide in the same step, or have provided before."""
    last = wanted.stop - 1
    for above in upstream:
        known = facts.standing[above]
        for epoch in wanted:
            if epoch > last:
                break
            if epoch <= until.get(above, 0):
                is_there = epoch in replayed.get(above, range(0))
            else:
                is_past = known.phase is not Phase.CATCHING_UP or epoch <= known.cursor
                is_there = is_past or epoch in taken.get(above, range(0))
            if not is_there:
                last = epoch - 1
    return range(wanted.start, last + 1)


def _from_buffers(
    facts: Facts, partitions: Mapping[Partition, range], until: Mapping[Partition, int]
) -> Iterator[tuple[Pair, range]]:
    """The epochs that buffers provide: those after the shadow's end that the sender has behind it."""
    for below, epochs in partitions.items():
        for above in facts.graph.upstream[below]:
            known = facts.standing[above]
            end = known.cursor if known.phase is Phase.CATCHING_UP else facts.head
            sent = range(max(epochs.start, until.get(above, 0) + 1), min(epochs.stop, end + 1))
            if sent:
                yield (above, below), sent


def loads(facts: Facts, partitions: Iterable[Partition]) -> dict[NodeId, float]:
    """What partitions take of their nodes, as parts of the nodes' capacity."""
    used: dict[NodeId, float] = {}
    for partition in partitions:
        node = facts.standing[partition].node
        if node is not None and facts.capacity.get(node):
            used[node] = used.get(node, 0.0) + facts.costs.get(partition, 0.0) / facts.capacity[node]
    return used


def load(facts: Facts, step: CatchUp) -> float:
    """What one epoch of a step takes of its busiest node, as a part of its capacity."""
    return max(loads(facts, (*step.partitions, *step.shadows)).values(), default=0.0)


def epochs_beside(facts: Facts, step: CatchUp, spare: float) -> int:
    """How many epochs of a step fit into one job with a live epoch, which may take longer by a part of a node's capacity.

    Nodes that are less busy than the busiest have time while that one works.
    """
    live = loads(facts, facts.live)
    longest = max(live.values(), default=0.0) + spare
    each = loads(facts, (*step.partitions, *step.shadows))
    fitting = min(((longest - live.get(node, 0.0)) / used for node, used in each.items() if used > 0), default=float("inf"))
    return int(min(fitting + 1e-9, MOST_EPOCHS_PER_STEP))


def is_pressing(facts: Facts) -> bool:
    """Whether those who are on their way back are worth so much more than those who are live that live epochs wait for steps."""
    up = frozenset(facts.of_phase(Phase.LIVE, Phase.CATCHING_UP))
    live = facts.live
    back = [need for need in facts.graph.queries.values() if need.partitions <= up]
    working = sum(need.priority for need in back if need.partitions <= live)
    return sum(need.priority for need in back) - working > PRESSING * working


def has_room(interval_s: float, usual_s: float, overhead_s: float, epoch_s: float) -> bool:
    """Whether steps of their own fit between two live epochs; if so, these need not carry any."""
    left_s = interval_s - usual_s + patience_s(interval_s, usual_s)
    return left_s >= overhead_s + LEAST_EPOCHS_PER_STEP * epoch_s


def patience_s(interval_s: float, usual_s: float) -> float:
    """By how much a live epoch may be late without its readers noticing: its rows wait for half an interval, then for its job."""
    return SHARE_OF_LATENCY * (interval_s / 2 + usual_s)


def epochs_aloft(facts: Facts, step: CatchUp, interval_s: float, patience_s: float, unit_s: float) -> dict[Partition, int]:
    """How many epochs each may take in a step that runs while live epochs go on; `unit_s` is how long a full node works for one.

    A node without live partitions has its whole time for it; where there are some, their tasks wait for it.
    """
    live = loads(facts, facts.live)
    each = loads(facts, (*step.partitions, *step.shadows))
    room_s = {node: patience_s if live.get(node) else FLIGHT_INTERVALS * interval_s for node in each}
    fitting = {node: room_s[node] / max(used * unit_s, 1e-9) for node, used in each.items()}
    return {
        partition: max(LEAST_EPOCHS_PER_STEP, int(min(fitting.get(node, 0.0), MOST_EPOCHS_PER_STEP)))
        for partition in step.partitions
        if (node := facts.standing[partition].node) is not None
    }


def nearly_there(facts: Facts, step: CatchUp) -> int:
    """How many epochs those who are nearest have to go, if that is so little that the next live epoch can take it; else 0.

    What catches up beside live epochs is one behind whenever it ends, so that the last stretch is taken together.
    """
    left = min((facts.head - taken.start + 1 for taken in step.partitions.values()), default=0)
    return left if left <= LEAST_EPOCHS_PER_STEP else 0


def smoothed_overhead_s(known_s: float | None, took_s: float, step: CatchUp, epoch_s: float) -> float:
    """What steps take beside the work that their partitions are known to cost, after one more step."""
    newest_s = max(0.0, took_s - step.longest * epoch_s)
    return newest_s if known_s is None else (known_s + newest_s) / 2


def epochs_per_step(budget_s: float, overhead_s: float, epoch_s: float, least: int = LEAST_EPOCHS_PER_STEP) -> int:
    """How many epochs a step may take: as many as fit into the time, but at least so many.

    >>> epochs_per_step(2.0, 1.0, 0.2), epochs_per_step(0.1, 1.0, 0.2), epochs_per_step(9.0, 1.0, 0.2)
    (5, 2, 16)
    """
    return max(least, min(MOST_EPOCHS_PER_STEP, int((budget_s - overhead_s) / max(epoch_s, 1e-3) + 1e-9)))


def shadows_needed(facts: Facts, coverage: Coverage, group: Collection[Partition]) -> dict[Partition, int]:
    """For each partition that must be replayed as a shadow for a group, the last epoch for which; shadows need shadows above them."""
    until: dict[Partition, int] = {}
    for below in reversed(list(facts.graph.upstream)):
        known = facts.standing[below]
        for above in facts.graph.upstream[below]:
            missing = 0
            if below in group:
                covered = coverage.get((above, below), frozenset())
                missing = _last_missing(facts, above, range(known.cursor + 1, facts.head + 1), covered)
            if below in until:
                again = _last_missing(facts, above, range(facts.checkpoint + 1, until[below] + 1), frozenset())
                missing = max(missing, again)
            if missing:
                until[above] = max(until.get(above, 0), missing)
    return until


def _kept(
    facts: Facts, until: Mapping[Partition, int], shadows: Mapping[Partition, int], group: Collection[Partition]
) -> dict[Partition, int]:
    """The shadows that have not yet passed an epoch which somebody below them still needs from them."""
    kept: dict[Partition, int] = {}
    wanted_from = dict.fromkeys(until, facts.head + 1)
    for below in reversed(list(facts.graph.upstream)):
        takers = [facts.standing[below].cursor] if below in group else []
        if below in until:
            if facts.checkpoint <= shadows.get(below, -1) < wanted_from[below]:
                kept[below] = shadows[below]
            if kept.get(below, facts.checkpoint) < until[below]:
                takers.append(kept.get(below, facts.checkpoint))
        for above in facts.graph.upstream[below]:
            for cursor in takers:
                if cursor < until.get(above, 0):
                    wanted_from[above] = min(wanted_from[above], cursor + 1)
    return kept


def _last_missing(facts: Facts, above: Partition, epochs: range, covered: frozenset[int]) -> int:
    """The last of these epochs that the upstream partition will not provide by itself and that no buffer has."""
    known = facts.standing[above]
    itself_from = known.cursor + 1 if known.phase is Phase.CATCHING_UP else facts.head + 1
    for epoch in reversed(epochs):
        if epoch < itself_from and epoch not in covered:
            return epoch
    return 0
