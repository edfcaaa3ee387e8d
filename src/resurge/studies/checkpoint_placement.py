"""ELASTIC's figures 7, 8 and 9, simulated: do copies lie where key groups must move when load grows?

The paper's job on real flights: operators 1, 2 and 3 on sixteen nodes, whose load grows with the input, and operator 4 on four
nodes, whose load does not. A key group has the flights of its airplanes to do. Loads are watched for fifteen minutes; then copies
are placed, and for the rest of 48 minutes key groups leave every node that is too full, by load: to the node of their copy if
that has room, else to the emptiest one.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl

from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.planning.checkpoint_placement import ALGORITHMS, CheckpointProblem, PlacementNode
from resurge.studies.flights import flights

COMPARED = ("baseline", "even", "correlated")
KEY_GROUPS = (16, 24, 32, 48)
GROWING_NODES, STEADY_NODES = 16, 4
MINUTES, WATCHED_MINUTES = 48, 15
TOO_FULL = 0.8
FIRST_LOAD, LAST_LOAD, STEADY_LOAD = TOO_FULL / 2, TOO_FULL, 0.1
"""Mean utilisation of the nodes of operators 1 to 3 at the beginning and at the end, and of those of operator 4, which reads a
sample. The paper does not say these. The input doubles, until the mean node is as full as it may be: beyond that, key groups
as large as a third of a node do not fit on twenty nodes, and no copy helps where nothing fits."""
SWINGING_FULL = 0.7
"""In the job whose load swings, what else nodes 0 and 2 do fills them already, as in the paper: no copy on node 0 helps."""
STATE_BYTES_PER_LOAD = 400_000_000
SHIPPED_BYTES_PER_S = 50_000_000.0
REPLAY_S = 0.1
"""What a move to a copy takes: little has come since the last checkpoint."""


@dataclass(frozen=True)
class Result:
    """What became of one run: moves, how many a copy assisted, how many copies could have, and how long moves took."""

    key_groups: int
    algorithm: str
    seed: int
    moves: int
    assisted: int
    usable_share: float
    latency_s: float
    direct_latency_s: float

    @property
    def assisted_share(self) -> float:
        """The part of the moves that a copy assisted."""
        return self.assisted / self.moves if self.moves else 0.0

    @property
    def saved_s(self) -> float:
        """How much longer the moves would have taken without copies."""
        return self.direct_latency_s - self.latency_s


@dataclass(frozen=True)
class Job:
    """The load of every key group at every time, where each begins, what else nodes have to do, and how long loads are watched.

    A node is too full beyond `full`.
    """

    key_groups: int
    loads: dict[str, list[float]]
    homes: dict[str, int]
    other_loads: Sequence[float]
    watched: int
    full: float = TOO_FULL


def sweep(seeds: int) -> Iterator[Result]:
    """Every number of key groups and every algorithm, on the same loads."""
    for key_groups in KEY_GROUPS:
        for seed in range(seeds):
            job = growing_job(key_groups, random.Random(f"{key_groups} {seed}"))
            for algorithm in COMPARED:
                yield run(job, algorithm, seed)


def swinging() -> dict[str, Result]:
    """The job whose load swings from one operator to the other, by each algorithm."""
    return {algorithm: run(swinging_job(), algorithm, 0) for algorithm in COMPARED}


def swinging_job() -> Job:
    """Two operators of ten key groups: all load is the first one's, then every second one percent more is the second one's.

    The operators have a node each; node 0 has none. Nodes 0 and 2 have something else to do, which takes 70 % of them.
    """
    loads = {
        f"{operator}/{group}": [0.6 / 10 * (1 - at / 100 if operator == 1 else at / 100) for at in range(101)]
        for operator in (1, 2)
        for group in range(10)
    }
    return Job(10, loads, {name: int(name[0]) for name in loads}, (0.7, 0.0, 0.7), 10, SWINGING_FULL)


def growing_job(key_groups: int, rng: random.Random) -> Job:
    """Operators 1 to 3 with load that grows, operator 4 with load that does not, minute by minute; key groups are dealt out."""
    loads: dict[str, list[float]] = {}
    homes: dict[str, int] = {}
    weights = rows_per_key_group(key_groups, rng.getrandbits(32))
    for operator in range(1, 5):
        is_growing = operator < 4
        nodes = range(GROWING_NODES) if is_growing else range(GROWING_NODES, GROWING_NODES + STEADY_NODES)
        share = len(nodes) / (3 if is_growing else 1) / sum(weights)
        for group, weight in enumerate(weights):
            name = f"{operator}/{group}"
            homes[name] = nodes[len(homes) % len(nodes)]
            loads[name] = [weight * share * _level(is_growing, minute) * rng.uniform(0.9, 1.1) for minute in range(MINUTES)]
    return Job(key_groups, loads, homes, [0.0] * (GROWING_NODES + STEADY_NODES), WATCHED_MINUTES)


def rows_per_key_group(key_groups: int, salt: int) -> list[float]:
    """The flights of a year whose airplane is of each key group; another salt gives airplanes other key groups."""
    planes = _rows_per_plane()
    hashes = hash_rows(planes.with_columns(salt=pl.lit(salt)), ("plane", "salt"))
    counts = np.bincount(key_groups_of(hashes, key_groups), weights=planes.get_column("len").to_numpy(), minlength=key_groups)
    return [float(count) for count in counts]


@cache
def _rows_per_plane() -> pl.DataFrame:
    return flights().drop_nulls("plane").group_by("plane", maintain_order=True).len()


def _level(is_growing: bool, minute: int) -> float:
    return FIRST_LOAD + (LAST_LOAD - FIRST_LOAD) * minute / (MINUTES - 1) if is_growing else STEADY_LOAD


class Cluster:
    """Where key groups and their copies are (-1 where there is none), and what nodes have to do at a time."""

    def __init__(
        self, homes: dict[str, int], copies: dict[str, int], other_loads: Sequence[float], full: float = TOO_FULL
    ) -> None:
        self.homes, self.copies, self.other_loads, self.full = dict(homes), copies, other_loads, full
        self.loads: dict[str, float] = {}
        self.used: list[float] = []

    def turn_to(self, loads: dict[str, float]) -> None:
        """Let key groups have these loads from now on."""
        self.loads, self.used = loads, list(self.other_loads)
        for group, node in self.homes.items():
            self.used[node] += loads[group]

    def too_full(self) -> list[int]:
        """The nodes that have too much to do."""
        return [node for node, used in enumerate(self.used) if used > self.full]

    def by_load(self) -> list[int]:
        """All nodes, the fullest first."""
        return sorted(range(len(self.used)), key=lambda node: -self.used[node])

    def fullest(self) -> list[int]:
        """The nodes that have too much to do, the fullest first."""
        return [node for node in self.by_load() if self.used[node] > self.full]

    def of(self, node: int) -> list[str]:
        """The key groups of a node, those with the most load first."""
        return sorted((group for group, home in self.homes.items() if home == node), key=lambda group: -self.loads[group])

    def takes(self, node: int, group: str) -> bool:
        """Whether a node has room for a key group of another one."""
        return node != self.homes[group] and self.used[node] + self.loads[group] <= self.full

    def move(self, group: str, target: int) -> None:
        """A key group goes to another node."""
        source = self.homes[group]
        if self.copies[group] == target:
            # What was the state becomes the copy.
            self.copies[group] = source
        self.homes[group] = target
        self.used[source] -= self.loads[group]
        self.used[target] += self.loads[group]


def run(job: Job, algorithm: str, seed: int) -> Result:
    """Place copies by what was watched, then let load change."""
    cluster = Cluster(job.homes, placed(job, algorithm), job.other_loads, job.full)
    moves = assisted = usable = looked_at = 0
    latency_s = direct_s = 0.0
    for at in range(job.watched, len(next(iter(job.loads.values())))):
        cluster.turn_to({group: series[at] for group, series in job.loads.items()})
        for group in (group for node in cluster.too_full() for group in cluster.of(node)):
            looked_at += 1
            usable += cluster.takes(cluster.copies[group], group)
        while (chosen := next_move(cluster)) is not None:
            group, target, is_assisted = chosen
            moves, assisted = moves + 1, assisted + is_assisted
            alone_s = cluster.loads[group] * STATE_BYTES_PER_LOAD / SHIPPED_BYTES_PER_S
            latency_s, direct_s = latency_s + (REPLAY_S if is_assisted else alone_s), direct_s + alone_s
            cluster.move(group, target)
    return Result(job.key_groups, algorithm, seed, moves, assisted, usable / max(1, looked_at), latency_s, direct_s)


def next_move(cluster: Cluster) -> tuple[str, int, bool] | None:
    """Active repartitioning: the fullest node gives its largest key group away that finds room; None if no node is too full.

    Which one goes is decided by load alone. It goes to the node of its copy if that has room, else to the emptiest one.
    """
    for group in (group for source in cluster.fullest() for group in cluster.of(source)):
        copied, emptiest = cluster.copies[group], cluster.by_load()[-1]
        target = copied if copied >= 0 and cluster.takes(copied, group) else emptiest
        if cluster.takes(target, group):
            return group, target, target == copied
    return None


def placed(job: Job, algorithm: str) -> dict[str, int]:
    """One copy of each key group, by what was watched."""
    nodes = {
        str(node): PlacementNode([group for group, home in job.homes.items() if home == node])
        for node in range(len(job.other_loads))
    }
    watched = {group: series[: job.watched] for group, series in job.loads.items()}
    plan = ALGORITHMS[algorithm](CheckpointProblem(nodes, watched))
    return {group: int(chosen[0]) for group, chosen in plan.placement.items()}


def means(results: Sequence[Result]) -> dict[tuple[int, str], tuple[float, float, float]]:
    """By number of key groups and algorithm: the shares of assisted moves and of usable copies, and the seconds saved."""
    found: dict[tuple[int, str], list[Result]] = {}
    for result in results:
        found.setdefault((result.key_groups, result.algorithm), []).append(result)
    return {
        key: (
            sum(result.assisted_share for result in some) / len(some),
            sum(result.usable_share for result in some) / len(some),
            sum(result.saved_s for result in some) / len(some),
        )
        for key, some in found.items()
    }
