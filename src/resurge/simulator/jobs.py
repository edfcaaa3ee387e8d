"""What simulated jobs bring."""

from resurge.coordinator.inputs import JobResult
from resurge.simulator.journal import Journal
from resurge.simulator.running import Running
from resurge.simulator.workload import query_name
from resurge.simulator.world import World


def result_of(running: Running, journal: Journal, world: World, now_s: float, durable: str | None) -> JobResult:
    """The figures of a job that succeeded; `durable` is the checkpoint that is so by now."""
    job, parts, rows_per_s = running.job, running.outcome.parts, world.timing.rows_per_s
    rows = lag = 0
    span_s = 0.0
    if job.live_epoch is not None and (planned := journal.planned.get(job.live_epoch)):
        span_s = planned.span_s
        rows = round(span_s * rows_per_s)
        lag = round((now_s - planned.end_s) * rows_per_s)
    shown = {query_name(query, world.workload.priorities) for query, epoch in parts if epoch == job.live_epoch}
    return JobResult(
        published_epochs=sorted({epoch for _, epoch in parts}),
        rows_read=rows,
        reading_cpu_s=world.workload.reading_cost * span_s,
        epoch_rows=rows,
        restore_s=running.restore_s,
        query_rows=dict.fromkeys(sorted(shown), 1),
        lag_rows=lag,
        shipped_bytes={str(partition): size for partition, size in running.outcome.shipped_bytes.items()},
        shipping_s=world.shipping_s(job) if job.leaves else 0.0,
        durable=durable,
    )
