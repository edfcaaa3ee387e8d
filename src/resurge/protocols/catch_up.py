"""Where the input of partitions that catch up comes from: their own upstream, buffers, or shadows. Pure.

A partition that catches up needs what each upstream partition produced in each epoch after its cursor. If the upstream
partition will itself process that epoch in the same catch-up, it provides it. If it is ahead, the output is in a buffer; where
there is none, the upstream partition is replayed as a shadow, from the last global checkpoint, touching nothing live.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from resurge.model.names import Partition
from resurge.protocols.recovery import Facts, Phase

LEAST_EPOCHS_PER_STEP = 2
"""One live epoch may pass between two steps, so a step of one epoch would never come nearer to the head."""

Coverage = Mapping[tuple[Partition, Partition], frozenset[int]]
"""The epochs whose output from one partition for another is buffered on a node that is up."""


@dataclass(frozen=True)
class CatchUp:
    """One bounded step: these epochs, for these partitions, fed by shadows up to an epoch and by buffers after it.

    Shadows that are kept go on from where they are; all others begin anew at the last global checkpoint.
    """

    first: int
    last: int
    partitions: tuple[Partition, ...]
    shadows_until: Mapping[Partition, int] = field(default_factory=dict)
    buffered: frozenset[tuple[Partition, Partition]] = frozenset()
    shadows_kept: frozenset[Partition] = frozenset()

    @property
    def epochs(self) -> range:
        """The epochs of the step."""
        return range(self.first, self.last + 1)


def next_step(facts: Facts, coverage: Coverage, shadows: Mapping[Partition, int], most_epochs: int) -> CatchUp | None:
    """The next step for the partitions nearest to the head, or None if none is behind.

    What was scheduled later starts further back; waiting for it would bring everything back at the end, and together.
    `shadows` are the cursors of shadows that exist.
    """
    catching = nearest(facts)
    if not catching:
        return None
    group = frozenset(catching)
    until = shadows_needed(facts, coverage, group)
    shadows = _kept(facts, until, shadows, group)
    starts = [facts.standing[partition].cursor + 1 for partition in catching if facts.standing[partition].cursor < facts.head]
    starts += [
        shadows.get(partition, facts.checkpoint) + 1
        for partition, last in until.items()
        if shadows.get(partition, facts.checkpoint) < last
    ]
    first = min(starts)
    last = min(facts.head, first + most_epochs - 1)
    buffered = frozenset(
        (above, below)
        for below in catching
        for above in facts.graph.upstream[below]
        if facts.standing[above].phase is not Phase.CATCHING_UP or facts.standing[above].cursor > facts.standing[below].cursor
    )
    return CatchUp(first, last, tuple(catching), until, buffered, frozenset(shadows))


def nearest(facts: Facts) -> list[Partition]:
    """Of the partitions that catch up, those with the least to go: whole groups, because a group's members feed each other."""
    behind = [group for group in groups(facts) if _progress(facts, group) < facts.head]
    best = max((_progress(facts, group) for group in behind), default=0)
    chosen = {partition for group in behind if _progress(facts, group) == best for partition in group}
    return [partition for partition in facts.graph.upstream if partition in chosen]


def _progress(facts: Facts, group: frozenset[Partition]) -> int:
    return min(facts.standing[partition].cursor for partition in group)


def groups(facts: Facts) -> list[frozenset[Partition]]:
    """The partitions that catch up, in groups that do not feed each other."""
    members: dict[Partition, set[Partition]] = {}
    for partition in facts.of_phase(Phase.CATCHING_UP):
        joined = {partition}
        for above in facts.graph.upstream[partition]:
            if above in members and members[above] is not joined:
                joined |= members[above]
        for member in joined:
            members[member] = joined
    distinct = {id(group): frozenset(group) for group in members.values()}
    return list(distinct.values())


def epochs_per_step(budget_s: float, epoch_s: float | None, most: int) -> int:
    """How many epochs a step may take: as many as fit into the time, but always enough to gain on the head.

    >>> epochs_per_step(1.0, 0.2, most=16), epochs_per_step(0.1, 0.2, most=16), epochs_per_step(1.0, None, most=16)
    (5, 2, 2)
    """
    if epoch_s is None:
        return LEAST_EPOCHS_PER_STEP
    return max(LEAST_EPOCHS_PER_STEP, min(most, int(budget_s / max(epoch_s, 1e-3))))


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
