"""What telemetry says of a job: the same events on Spark and in the simulator."""

from collections.abc import Mapping

from resurge.coordinator.commands import Emit
from resurge.coordinator.job_events import Emitted
from resurge.coordinator.state import JobState, Publication, Saving
from resurge.model.gaps import Gap
from resurge.model.names import Partition
from resurge.protocols.recovery import RecoveryState
from resurge.telemetry import events


def started(state: JobState, now_s: float) -> JobState:
    """A driver began."""
    known, recovery = state.description, state.recovery
    found: list[events.Event] = [
        events.JobStarted(
            now_s,
            known.name,
            known.generation,
            known.master,
            sorted(recovery.capacity),
            dict(known.priorities),
            known.key_groups,
            recovery.head,
            recovery.checkpoint,
        )
    ]
    if known.topology is not None:
        found.append(known.topology)
    found += [events.Warned(now_s, warning) for warning in known.warnings]
    return state.emitting(Emitted.at_start(is_new=known.generation == 1), found)


def arrivals_s(state: JobState, before: RecoveryState, after: RecoveryState) -> dict[str, tuple[float, ...]]:
    """By query, when the rows of those epochs arrived that are now published in full: by all of its partitions."""
    found: dict[str, tuple[float, ...]] = {}
    for query, partitions in state.description.outputs.items():
        if partitions:
            first = before.roster.published(partitions, before.head)
            last = after.roster.published(partitions, after.head)
        else:
            first, last = before.head, after.head
        times = tuple(state.arrivals_s[epoch] for epoch in range(first + 1, last + 1) if epoch in state.arrivals_s)
        if times:
            found[query] = times
    return found


def published(state: JobState, publication: Publication, now_s: float) -> JobState:
    """Readers see what a job has staged: an epoch, or what lagging partitions have made."""
    latencies_s = {query: [now_s - at_s for at_s in times] for query, times in publication.arrivals_s.items()}
    emitted, found = state.emitted.committed(now_s, state.recovery)
    if publication.epoch is not None:
        found = [*found, _epoch(state, publication, publication.epoch, latencies_s, now_s)]
    elif publication.step is not None:
        found = [*found, _catch_up(publication, latencies_s, now_s)]
    emitted, load = emitted.measured(now_s, state.recovery, state.buffers.size_bytes)
    return state.emitting(emitted, [*found, *load])


def _epoch(
    state: JobState, publication: Publication, epoch: int, latencies_s: Mapping[str, list[float]], now_s: float
) -> events.EpochFinished:
    result = publication.result
    return events.EpochFinished(
        now_s,
        epoch,
        result.rows_read,
        publication.took_s,
        publication.arrival_s,
        {query: result.query_rows.get(query, 0) for query in state.description.outputs},
        {query: times[-1] for query, times in latencies_s.items()},
        result.state_rows,
        result.state_bytes,
        dict(result.late_rows),
        result.bad_rows,
        result.lag_rows,
        state.rhythm.row_limit,
        dict(result.level_cpu_s),
    )


def _catch_up(publication: Publication, latencies_s: dict[str, list[float]], now_s: float) -> events.CatchUpFinished:
    step = publication.step
    assert step is not None
    epochs = step.epochs
    return events.CatchUpFinished(
        now_s,
        epochs[0],
        epochs[-1],
        publication.took_s,
        len(step.partitions),
        len(step.shadows),
        publication.replays,
        latencies_s,
        publication.result.restore_s,
        publication.is_joined,
        dict(publication.result.past_rows),
    )


def checkpointed(state: JobState, saving: Saving, now_s: float) -> JobState:
    """A checkpoint is in the journal."""
    took_s = now_s - saving.since_s
    state = state.sending(Emit(events.CheckpointFinished(now_s, saving.epoch, took_s, saving.absent, saving.kept_since)))
    if saving.was_buffering:
        state = state.sending(Emit(events.BufferingSwitched(now_s, saving.epoch, False)))
    return state


def given_up(state: JobState, gaps: Mapping[Partition, Gap], now_s: float) -> JobState:
    """Partitions have skipped epochs; those that skipped the same ones are named together."""
    alike: dict[Gap, list[str]] = {}
    for partition, gap in gaps.items():
        alike.setdefault(gap, []).append(str(partition))
    found = (events.PartitionsGivenUp(now_s, gap.first, gap.last, names, gap.rows) for gap, names in alike.items())
    return state.sending(*map(Emit, found))


def waiting(state: JobState, now_s: float) -> JobState:
    """There is no node."""
    return state.sending(Emit(events.WaitingForNodes(now_s, state.recovery.head)))
