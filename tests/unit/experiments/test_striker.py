"""Kills and additions on cue, and what a seed leaves to the next; on a cluster that only counts."""

from types import SimpleNamespace
from typing import Any

from resurge.experiments.chaos import replenish
from resurge.testing.fault_injection import Strike, Striker
from tests.support.telemetry import epoch


class CountedCluster:
    """Nodes that are only names; the executors of killed nodes are seen once more, as Spark does."""

    def __init__(self, nodes: int) -> None:
        self.alive = [f"node-{number + 1}" for number in range(nodes)]
        self.started = nodes
        self.seen: list[list[str]] = []

    def nodes(self) -> list[Any]:
        return [SimpleNamespace(name=name, is_alive=True) for name in self.alive]

    def kill(self, *names: str) -> None:
        self.seen.append(list(self.alive))
        for name in names:
            self.alive.remove(name)

    def add(self, count: int = 1) -> list[str]:
        added = [f"node-{self.started + number + 1}" for number in range(count)]
        self.alive += added
        self.started += count
        return added

    def wait_for(self, spark: Any, executors: int) -> dict[str, str]:
        return dict(enumerate(self.seen.pop() if self.seen else self.alive))


def struck(cluster: CountedCluster, *strikes: Strike) -> Striker:
    """A striker that was told of the end of epoch 1."""
    striker = Striker(cluster, strikes, lambda alive, count: alive[:count])
    striker.listen(epoch(1))
    return striker


def test_two_strikes_at_the_same_time_kill_different_nodes():
    """Each chooses among those that the other left."""
    cluster = CountedCluster(4)
    striker = struck(cluster, Strike(1, 0.0, 1), Strike(1, 0.0, 2))
    for thread in striker.threads:
        thread.join()
    assert (striker.kills, cluster.alive) == (3, ["node-4"])


def test_a_strike_that_comes_too_late_for_the_job_kills_nobody():
    """It would count as a failure that the job survived, and cost the next one its nodes."""
    cluster = CountedCluster(4)
    striker = struck(cluster, Strike(1, 60.0, 2, (0.0, 0.0)))
    striker.finish()
    assert (striker.kills, len(cluster.alive), cluster.started) == (0, 4, 4)


def test_every_seed_begins_with_as_many_nodes_as_the_first():
    """What is missing is added, and what is too much is taken away."""
    short, long = CountedCluster(2), CountedCluster(6)
    replenish(short, SimpleNamespace(spark=None), 4)
    replenish(long, SimpleNamespace(spark=None), 4)
    assert (len(short.alive), len(long.alive)) == (4, 4)
    assert not long.seen
