"""From a coordinator's job to the work of a Spark job: where states lie, what is read, sent again and buffered. Pure."""

from collections.abc import Collection

from resurge.model.names import NodeId, Partition
from resurge.model.work import Job
from resurge.operators.program import Program
from resurge.runtime.driver.job_plans import PartitionWork, Work, arriving_work, partition_work
from resurge.runtime.driver.layouts import Usual
from resurge.runtime.driver.ledger import Ledger
from resurge.runtime.driver.versions import Versions


def compiled(
    job: Job, program: Program, versions: Versions, ledger: Ledger, sources_published: int, usual: Usual | None = None
) -> Work:
    """The work of a job; queries of the sources themselves publish the epochs after `sources_published`.

    One that goes on from the last usual epoch does so without a look at any partition.
    """
    epochs = [ledger.work(epoch, is_published=epoch > sources_published) for epoch in job.epochs]
    if usual is not None:
        splits = [split for epoch in job.epochs for split in ledger.splits(epoch)]
        return Work(job.epochs[-1], epochs, splits, {}, {}, buffered_groups(job.buffered_for, program), job.is_checkpoint, usual)
    partitions: dict[NodeId, list[PartitionWork]] = {}
    tasks = {task.partition: task for task in job.tasks if task.partition in job.leaves}
    arriving = {ship.partition: arriving_work(ship, tasks.get(ship.partition), versions) for ship in job.ships}
    for ship in job.ships:
        partitions.setdefault(ship.target, []).append(arriving[ship.partition])
    for task in job.tasks:
        if task.partition not in arriving:
            partitions.setdefault(task.node, []).append(partition_work(task, versions))
    read = read_again(job, program, sources_published)
    splits = [split for epoch in job.epochs if epoch in read for split in ledger.splits(epoch)]
    return Work(
        job.epochs[-1] if job.epochs else max(_cursors(job), default=0),
        epochs,
        splits,
        partitions,
        versions.replays(job.replays),
        buffered_groups(job.buffered_for, program),
        job.is_checkpoint,
    )


def _cursors(job: Job) -> list[int]:
    return [*(task.replica.cursor for task in job.tasks), *(ship.cursor for ship in job.ships)]


def read_again(job: Job, program: Program, sources_published: int) -> set[int]:
    """The epochs whose input somebody needs: not those who only follow others, nor queries of the sources that have it."""
    fed = {operator for operator in program.partitioned_operators() if program.reads_sources(operator)}
    readers = {(task.replica.cursor, task.until) for task in job.tasks if task.partition.operator in fed}
    return {
        epoch for epoch in job.epochs if epoch > sources_published or any(cursor < epoch <= until for cursor, until in readers)
    }


def buffered_groups(kept_for: Collection[Partition], program: Program) -> dict[int, list[int]]:
    """For each exchange of a keyed operator, the key groups that some of these partitions will need."""
    found: dict[int, list[int]] = {}
    if not kept_for:
        return found
    for exchange in program.exchanges:
        if program.owner(exchange.vertex) is None:
            continue
        groups = sorted({int(partition.key_group) for partition in kept_for if partition.operator in exchange.consumers})
        if groups:
            found[exchange.number] = groups
    return found
