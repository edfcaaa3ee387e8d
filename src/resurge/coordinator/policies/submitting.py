"""The one way in which a job begins."""

from dataclasses import replace

from resurge.coordinator.commands import Run
from resurge.coordinator.state import JobState, RunningJob
from resurge.errors import ProtocolError
from resurge.model.names import Partition
from resurge.model.work import Job, Role
from resurge.protocols.catch_up import CatchUp


def submitted(state: JobState, now_s: float, job: Job, step: CatchUp | None = None, *, is_foreground: bool) -> JobState:
    """A job runs; it must be admitted."""
    if reason := _refused(state, job):
        raise ProtocolError(f"job {job.attempt} cannot run: {reason}")
    jobs = {**state.jobs, job.attempt: RunningJob(job, now_s, step)}
    lane = replace(state.lane, foreground=job.attempt) if is_foreground else state.lane
    return replace(state, jobs=jobs, lane=lane).sending(Run(job))


def admits(state: JobState, job: Job) -> bool:
    """Whether a job may run beside those that run: all of its nodes are up, and no replica has two writers."""
    return not _refused(state, job)


def _refused(state: JobState, job: Job) -> str:
    missing = sorted(job.nodes - state.recovery.capacity.keys())
    if missing or not job.nodes:
        return f"it needs {', '.join(missing) or 'nodes, and has none'}; expected nodes that are up"
    for attempt, running in state.jobs.items():
        both = _written_by_both(job, running.job)
        if both:
            name = min(f"the {role.value} of {partition}" for partition, role in both)
            return f"{name} is written by job {attempt}; expected one writer"
    return ""


def _written_by_both(job: Job, other: Job) -> set[tuple[Partition, Role]]:
    usual, beside = (job, other) if job.steady is not None else (other, job)
    if usual.steady is None:
        return _written(job) & _written(other)
    live = usual.steady.assignment.partitions
    return {(partition, role) for partition, role in _written(beside) if role is Role.PRIMARY and partition in live}


def _written(job: Job) -> set[tuple[Partition, Role]]:
    """The replicas that a job writes."""
    ships = job.ships if job.is_shipping_only else ()
    return {(task.partition, task.replica.role) for task in job.tasks} | {(ship.partition, Role.COPY) for ship in ships}
