"""What the slots of a job reported, as the figures that the coordinator decides from and telemetry tells."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from resurge.coordinator.inputs import CPU_S, MISPLACED, Failure, JobResult
from resurge.model.names import NodeId
from resurge.model.work import Job
from resurge.redaction import redacted
from resurge.runtime.driver.versions import Version
from resurge.runtime.worker.messages import GROUPS, CohortReport, SlotReport

Reports = Sequence[SlotReport]


def failure(reports: Reports) -> Failure | None:
    """Why a job failed, if a task did; the fault of a task itself says more than that another was misplaced."""
    failed = [report.failure for report in reports if report.failure is not None]
    if not failed:
        return None
    kind, message = min(failed, key=lambda known: known[0] == MISPLACED)
    return Failure(kind, redacted(message))


def job_result(job: Job, reports: Reports, others: Iterable[Version], *, levels: int, **known: int | None) -> JobResult:
    """The figures of a job that succeeded, beside which there are `others`; `known` has `replayed_buffers` and `lag_rows`."""
    rows: dict[str, int] = {}
    past: dict[str, dict[int, int]] = {}
    for part in (part for report in reports for part in report.parts):
        if part.epoch == job.live_epoch:
            rows[part.query] = rows.get(part.query, 0) + part.rows
        else:
            epochs = past.setdefault(part.query, {})
            epochs[part.epoch] = epochs.get(part.epoch, 0) + part.rows
    state_rows, state_bytes = _state(reports, list(others))
    return JobResult(
        published_epochs=sorted({part.epoch for report in reports for part in report.parts}),
        rows_read=sum(report.rows_read for report in reports),
        epoch_rows=sum(report.epoch_rows.get(job.live_epoch or 0, 0) for report in reports),
        bad_rows=sum(report.bad_rows for report in reports),
        cpu_s=_cpu_s(reports),
        reading_cpu_s=sum(report.cpu_s for report in reports if report.level == 0),
        restore_s=restore_s(reports),
        buffered_bytes=_buffered_bytes(reports),
        query_rows=rows,
        past_rows=past,
        late_rows=_late_rows(reports),
        level_cpu_s={f"level {level}": sum(r.cpu_s for r in reports if r.level == level) for level in range(levels)},
        state_rows=state_rows,
        state_bytes=state_bytes,
        lag_rows=known.get("lag_rows"),
        replayed_buffers=known.get("replayed_buffers") or 0,
        shipped_bytes={name: size for report in reports for name, size in report.shipped_bytes.items()},
        shipping_s=_slowest_s(reports, lambda report: report.shipping_s),
        copy_bytes=_copy_bytes(reports),
    )


def _primaries(reports: Reports) -> Iterator[CohortReport]:
    return (cohort for report in reports for cohort in report.cohorts if not (cohort.shadow or cohort.copy))


def _copy_bytes(reports: Reports) -> dict[str, int]:
    return {
        f"{cohort.operator}/{group}": cohort.state_bytes // cohort.size
        for report in reports
        for cohort in report.cohorts
        if cohort.copy
        for group in cohort.key_groups
    }


def _cpu_s(reports: Reports) -> dict[str, bytes]:
    """By operator, what each key group took of its cohort's CPU time."""
    cohorts = list(_primaries(reports))
    sizes = [cohort.size for cohort in cohorts]
    if not sum(sizes):
        return {}
    groups = np.frombuffer(b"".join(cohort.groups for cohort in cohorts), GROUPS)
    shares = np.frombuffer(b"".join(cohort.shares for cohort in cohorts), CPU_S)
    names = list(dict.fromkeys(cohort.operator for cohort in cohorts))
    numbers = {name: number for number, name in enumerate(names)}
    found = np.full((len(names), int(groups.max()) + 1), np.nan, CPU_S)
    rows = np.repeat([numbers[cohort.operator] for cohort in cohorts], sizes)
    found[rows, groups] = shares * np.repeat([cohort.cpu_s for cohort in cohorts], sizes)
    return {name: found[number].tobytes() for name, number in numbers.items()}


def _late_rows(reports: Reports) -> dict[str, int]:
    found: dict[str, int] = {}
    for cohort in (cohort for report in reports for cohort in report.cohorts if cohort.late_rows):
        found[cohort.operator] = found.get(cohort.operator, 0) + cohort.late_rows
    return found


def _buffered_bytes(reports: Reports) -> dict[NodeId, int]:
    found: dict[NodeId, int] = {}
    for buffer in (buffer for report in reports for buffer in report.buffers):
        node = NodeId(buffer.node)
        found[node] = found.get(node, 0) + buffer.size_bytes
    return found


def _state(reports: Reports, others: Sequence[Version]) -> tuple[int, int]:
    """Rows and bytes of all states once a job has been adopted."""
    rows = sum(cohort.state_rows for cohort in _primaries(reports)) + sum(version.state_rows for version in others)
    size_bytes = sum(cohort.state_bytes for cohort in _primaries(reports)) + sum(version.state_bytes for version in others)
    return rows, size_bytes


def restore_s(reports: Iterable[SlotReport]) -> float:
    """How long the slowest slot of each level read checkpoints."""
    return _slowest_s(reports, lambda report: report.restore_s)


def _slowest_s(reports: Iterable[SlotReport], seconds: Callable[[SlotReport], float]) -> float:
    """The sum over levels of what the slowest slot took."""
    slowest: dict[int, float] = {}
    for report in reports:
        slowest[report.level] = max(slowest.get(report.level, 0.0), seconds(report))
    return sum(slowest.values())
