"""What happens when partitions have been down for so long that more input is kept for them than the user allows."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from resurge.coordinator import recorder
from resurge.coordinator.commands import AddOlderStates, CheckpointCommit, Forget
from resurge.coordinator.inputs import Failure
from resurge.coordinator.state import JobState
from resurge.model.gaps import Gap
from resurge.model.names import Partition
from resurge.protocols.giving_up import can_skip, given_up
from resurge.protocols.recovery import Phase

MOST_NAMED = 5
"""A message names so many partitions; more would hide what it says."""


def kept_within_limit(state: JobState, now_s: float) -> JobState:
    """Stop, or let the partitions that are too far behind skip what is kept for them; asked when the planner had no node for them."""
    too_far_behind = _too_far_behind(state)
    if not too_far_behind:
        return state
    if not state.settings.gives_up:
        return replace(state, failure=_failure(state, too_far_behind))
    recovery = state.recovery
    # What is live has its states in the newest checkpoint, and feeds them from there on. Without it, nothing holds them back.
    epoch = recovery.cuts.last if recovery.live else recovery.head
    skipping = can_skip(recovery, too_far_behind, epoch)
    return _given_up(state, skipping, epoch, now_s) if skipping else state


def _too_far_behind(state: JobState) -> list[Partition]:
    recovery, limit = state.recovery, state.settings.most_epochs_kept
    if limit is None or recovery.all_live:
        return []
    waiting = recovery.of_phase(Phase.DOWN, Phase.STALLED)
    return [partition for partition in waiting if recovery.head - recovery.restore_point(partition) > limit]


def _failure(state: JobState, absent: list[Partition]) -> Failure:
    recovery = state.recovery
    oldest = min(recovery.restore_point(partition) for partition in absent)
    named = ", ".join(map(str, absent[:MOST_NAMED])) + (
        f" and {len(absent) - MOST_NAMED} more" if len(absent) > MOST_NAMED else ""
    )
    message = (
        f"{len(absent)} partitions are down ({named}), and the input of {recovery.head - oldest} epochs is kept for them; expected at "
        f"most {state.settings.most_epochs_kept}: add nodes and run the same command again, or allow more; no data was lost"
    )
    return Failure("JobError", message)


def _given_up(state: JobState, partitions: Collection[Partition], epoch: int, now_s: float) -> JobState:
    """Publish the checkpoint of an epoch, once more if there is one, with older states of these partitions: one record decides it."""
    before = state.recovery
    after = given_up(before, partitions, epoch)
    first = after.cuts.first
    older = {partition: before.restore_point(partition) for partition in before.graph.upstream if partition in partitions}
    gaps = _gaps(state, older, epoch)
    known = {
        **state.gaps,
        **{
            partition: state.gaps[partition].followed_by(gap) if partition in state.gaps else gap
            for partition, gap in gaps.items()
        },
    }
    absent = tuple(p for p in before.graph.upstream if p not in after.cuts.kept[-1].partitions)
    versions = {partition: version for partition, version in state.versions.items() if partition not in partitions}
    # The record names other partitions than those that miss the next epoch: its commit names them again.
    state = replace(state, recovery=after, versions=versions, gaps=known, absent=None)
    state, number = state.numbered()
    state = state.sending(AddOlderStates(number, epoch, older))
    state = state.appending(CheckpointCommit(epoch, absent))
    state, number = state.numbered()
    state = state.sending(Forget(number, epoch, first))
    state = state.emitting(*state.emitted.changed(now_s, before, after))
    return recorder.given_up(state, gaps, now_s)


def _gaps(state: JobState, older: Mapping[Partition, int], epoch: int) -> dict[Partition, Gap]:
    rows = {since: sum(state.rows_read.get(each, 0) for each in range(since + 1, epoch + 1)) for since in set(older.values())}
    return {partition: Gap(since + 1, epoch, epoch - since, rows[since]) for partition, since in older.items()}
