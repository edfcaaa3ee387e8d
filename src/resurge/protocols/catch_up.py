"""Where the input of partitions that catch up comes from: their own upstream, buffers, or shadows. Pure.

A partition that catches up needs what each upstream partition produced in each epoch after its cursor. If the upstream
partition will itself process that epoch in the same catch-up, it provides it. If it is ahead, the output is in a buffer; where
there is none, the upstream partition is replayed as a shadow, from the newest checkpoint that is not after the cursor of the
one that it feeds, touching nothing live.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from resurge.model.names import Partition
from resurge.protocols.epoch_sets import EpochSet
from resurge.protocols.recovery import Phase, RecoveryState

MOST_EPOCHS_PER_STEP = 16
NOTHING = EpochSet()

Pair = tuple[Partition, Partition]
Coverage = Mapping[Pair, EpochSet]
"""The epochs whose output from one partition for another is buffered on a node that is up."""


def changed(coverage: Coverage, added: Iterable[tuple[Pair, range]], dropped: Iterable[tuple[Pair, range]] = ()) -> Coverage:
    """The coverage after buffers were added and dropped.

    Of an epoch that two buffers had, because it was produced twice, nothing counts any more when one of them is dropped: a
    shadow replays it.
    """
    found = dict(coverage)
    for pair, epochs in added:
        found[pair] = found.get(pair, NOTHING).with_span(epochs)
    for pair, epochs in dropped:
        found[pair] = found.get(pair, NOTHING).without_span(epochs)
    return found


@dataclass(frozen=True)
class CatchUp:
    """One bounded step: the epochs that each partition and each shadow takes, and the epochs that buffers send again.

    Each partition continues from its own cursor, so the ones nearest to the head meet it first. Kept shadows continue from
    their cursors; all others are restored from a checkpoint just before the first epoch that they take.
    """

    partitions: Mapping[Partition, range]
    shadows: Mapping[Partition, range] = field(default_factory=dict)
    buffered: Mapping[Pair, range] = field(default_factory=dict)
    shadows_kept: frozenset[Partition] = frozenset()

    @property
    def epochs(self) -> list[int]:
        """The epochs that at least one partition or shadow takes."""
        return sorted({epoch for taken in (*self.partitions.values(), *self.shadows.values()) for epoch in taken})

    @property
    def longest(self) -> int:
        """The largest number of epochs that one partition or shadow takes."""
        return max(map(len, (*self.partitions.values(), *self.shadows.values())), default=0)

    def cursors(self) -> dict[Partition, int]:
        """The cursor of each partition after the step."""
        return {partition: taken[-1] for partition, taken in self.partitions.items()}


def next_step(
    recovery: RecoveryState,
    coverage: Coverage,
    shadows: Mapping[Partition, int],
    most_epochs: int = MOST_EPOCHS_PER_STEP,
    more_epochs: Mapping[Partition, int] | None = None,
    among: Collection[Partition] | None = None,
) -> CatchUp | None:
    """The next step, or None if no partition is lagging. Each takes at most `most_epochs`, or as many as `more_epochs` says.

    `shadows` are the cursors of the shadows that exist; `among` restricts the step to some partitions.
    """
    chosen = None if among is None else frozenset(among)
    catching = [p for p in lagging(recovery) if chosen is None or p in chosen]
    if not catching:
        return None
    needed = _needed(recovery, coverage, shadows, frozenset(catching))
    until, kept = needed.until, needed.kept
    more = more_epochs or {}
    taken = {p: _after(recovery.statuses[p].cursor, recovery.head, more.get(p, most_epochs)) for p in catching}
    replayed = {p: _after(needed.cursors[p], last, most_epochs) for p, last in until.items() if needed.cursors[p] < last}
    taking = [
        (partition, above) for partition, above in recovery.graph.upstream.items() if partition in taken or partition in replayed
    ]
    is_settled = False
    while not is_settled:
        before = (dict(taken), dict(replayed))
        for partition, upstream in taking:
            for mine in (replayed, taken):
                if partition in mine:
                    mine[partition] = _fed(recovery, upstream, mine[partition], until, replayed, taken)
        for below, upstream in taking:
            for above in upstream & replayed.keys() if replayed else ():
                for mine in (replayed, taken):
                    if below in mine:
                        replayed[above] = _not_ahead(replayed[above], mine[below], until[above])
            if below in taken and not recovery.is_buffering:
                for above in upstream & taken.keys():
                    taken[above] = _together(taken[above], taken[below])
        is_settled = before == (taken, replayed)
    partitions = {partition: epochs for partition, epochs in taken.items() if epochs}
    return CatchUp(
        partitions,
        {partition: epochs for partition, epochs in replayed.items() if epochs},
        dict(_from_buffers(recovery, partitions, until)),
        frozenset(kept),
    )


def lagging(recovery: RecoveryState) -> list[Partition]:
    """The partitions that are catching up and have epochs left to take."""
    return [p for p in recovery.of_phase(Phase.CATCHING_UP) if recovery.statuses[p].cursor < recovery.head]


def _after(cursor: int, last: int, most_epochs: int) -> range:
    return range(cursor + 1, min(last, cursor + most_epochs) + 1)


def _not_ahead(shadow: range, receiver: range, until: int) -> range:
    """A shadow stops before an epoch that a receiver still needs and does not take now: otherwise it would be restored again."""
    if receiver.start > until or receiver.start >= shadow.stop:
        return shadow
    return range(shadow.start, max(shadow.start, min(shadow.stop, receiver.stop)))


def _together(above: range, below: range) -> range:
    """Without buffers, a partition does not get ahead of one that it feeds: its output would have to be replayed."""
    return range(above.start, min(above.stop, below.stop)) if below.start <= above.start < below.stop else above


def _fed(
    recovery: RecoveryState,
    upstream: Iterable[Partition],
    wanted: range,
    until: Mapping[Partition, int],
    replayed: Mapping[Partition, range],
    taken: Mapping[Partition, range],
) -> range:
    """As much of the wanted epochs as all upstream partitions provide in the same step, or have provided before."""
    last = wanted.stop - 1
    for above in upstream:
        known = recovery.statuses[above]
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
    recovery: RecoveryState, partitions: Mapping[Partition, range], until: Mapping[Partition, int]
) -> Iterator[tuple[Pair, range]]:
    """The epochs that buffers provide: those after the shadow's end that the sender has behind it."""
    for below, epochs in partitions.items():
        for above in recovery.graph.upstream[below]:
            known = recovery.statuses[above]
            end = known.cursor if known.phase is Phase.CATCHING_UP else recovery.head
            sent = range(max(epochs.start, until.get(above, 0) + 1), min(epochs.stop, end + 1))
            if sent:
                yield (above, below), sent


def shadows_needed(recovery: RecoveryState, coverage: Coverage, group: Collection[Partition]) -> Mapping[Partition, int]:
    """For each partition that must be replayed as a shadow for a group, the last epoch for which; shadows need shadows above them."""
    return _needed(recovery, coverage, {}, frozenset(group)).until


@dataclass(frozen=True)
class _Needed:
    """The shadows that a group needs: the last epoch for which, where they are or begin, and which of them go on."""

    until: Mapping[Partition, int]
    cursors: Mapping[Partition, int]
    kept: frozenset[Partition]


def _needed(
    recovery: RecoveryState, coverage: Coverage, shadows: Mapping[Partition, int], group: frozenset[Partition]
) -> _Needed:
    """What must be replayed for a group, from the lowest up: where a shadow begins says what it needs from those above it.

    Who needs a shadow's epoch takes it from there, whatever buffers have, so that it begins before all whom it feeds. One that
    exists goes on unless it has passed an epoch which somebody below it still needs from it.
    """
    until, cursors, kept = dict[Partition, int](), dict[Partition, int](), set[Partition]()
    fed: dict[Partition, list[int]] = {}
    for below in reversed(list(recovery.graph.upstream)):
        if below not in group and below not in until:
            continue
        takers: list[tuple[range, bool]] = []
        if below in group:
            takers.append((range(recovery.statuses[below].cursor + 1, recovery.head + 1), True))
        if below in until:
            last = min((cursor for cursor in fed[below] if cursor < until[below]), default=recovery.head)
            begins = recovery.cuts.before(below, last)
            if begins <= shadows.get(below, -1) <= last:
                begins = shadows[below]
                kept.add(below)
            cursors[below] = begins
            takers.append((range(begins + 1, until[below] + 1), False))
        for above in recovery.graph.upstream[below]:
            for epochs, is_buffered in takers:
                covered = coverage.get((above, below), NOTHING) if is_buffered else NOTHING
                fed.setdefault(above, []).extend([epochs.start - 1] if epochs else [])
                if missing := _last_missing(recovery, above, epochs, covered):
                    until[above] = max(until.get(above, 0), missing)
    return _Needed(until, cursors, frozenset(kept))


def _last_missing(recovery: RecoveryState, above: Partition, epochs: range, covered: EpochSet) -> int:
    """The last of these epochs that the upstream partition will not provide by itself and that no buffer has."""
    known = recovery.statuses[above]
    itself_from = known.cursor + 1 if known.phase is Phase.CATCHING_UP else recovery.head + 1
    return covered.last_missing(range(epochs.start, min(epochs.stop, itself_from))) or 0
