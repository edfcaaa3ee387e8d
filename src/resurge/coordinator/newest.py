"""Which attempt wrote each partition's newest version: the same one for all that took the last live epoch."""

from collections.abc import Iterator, Mapping

from resurge.model.names import Partition
from resurge.model.work import Job, Role


class Newest(Mapping[Partition, str]):
    """The attempt that wrote the newest versions of some partitions together, and those of the others.

    `holders` are all that have a version: the same value as long as nobody else has one.
    """

    def __init__(
        self, taken: frozenset[Partition], attempt: str, others: Mapping[Partition, str], holders: frozenset[Partition]
    ) -> None:
        self.taken = taken
        self.attempt = attempt
        self.others = others
        self.holders = holders

    def __getitem__(self, partition: Partition) -> str:
        return self.attempt if partition in self.taken else self.others[partition]

    def __iter__(self) -> Iterator[Partition]:
        # In an order that no hash decides.
        yield from sorted(self.taken)
        yield from self.others

    def __len__(self) -> int:
        return len(self.taken) + len(self.others)


def adopted(versions: Mapping[Partition, str], job: Job, live: frozenset[Partition]) -> Mapping[Partition, str]:
    """The newest versions once a job has succeeded; `live` are those who take new epochs."""
    if job.steady is not None and isinstance(versions, Newest) and versions.taken is job.steady.assignment.partitions:
        return Newest(versions.taken, job.attempt, versions.others, versions.holders)
    if not job.tasks:
        return versions
    taken = dict.fromkeys(task.partition for task in job.tasks if task.replica.role is Role.PRIMARY)
    if job.live_epoch is None or taken.keys() != live:
        return {**versions, **dict.fromkeys(taken, job.attempt)}
    others = {partition: version for partition, version in versions.items() if partition not in live}
    return Newest(live, job.attempt, others, live.union(others))


def shared(versions: Mapping[Partition, str], live: frozenset[Partition]) -> str | None:
    """The attempt that wrote the newest versions of all these partitions, if that is known without a look at each."""
    return versions.attempt if isinstance(versions, Newest) and versions.taken is live else None


def holders(versions: Mapping[Partition, str]) -> Mapping[Partition, str] | frozenset[Partition]:
    """Who has a version: the same value as long as nobody else has one."""
    return versions.holders if isinstance(versions, Newest) else versions
