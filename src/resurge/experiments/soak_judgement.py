"""Whether something grew during a soak: the first and the last part of each series after the warm-up are compared."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Sample = dict[str, float]
"""Figures at a moment: "<kind>/<figure>" of the processes of a kind, "<folder>/files" and "<folder>/bytes"."""

WARM_UP_S = 600.0
SHORT_WARM_UP = 1 / 6
# Windows and what is maintained of them fill for two minutes, and runs of state are merged after that.
LEAST_WARM_UP_S = 180.0
LEAST_SAMPLES = 8
SHARE = 0.05
MIB = 2**20
# What may come on top of a twentieth: collectors and caches breathe, a folder is trimmed at checkpoints only.
ALLOWED = {"memory_bytes": 24 * MIB, "descriptors": 8, "threads": 4, "processes": 6, "files": 40, "bytes": 8 * MIB}
# With a node that is away, its processes and files are too.
ALLOWED_OF_CLUSTER_FILES = 120
# A Java heap is enlarged up to its limit before anything is collected in earnest.
ALLOWED_OF_JVM_BYTES, SHARE_OF_JVM = 64 * MIB, 0.1


@dataclass(frozen=True)
class Ends:
    """A series at the beginning and at the end of what is judged, and what it may have at the end."""

    first: float
    last: float
    allowed: float

    @property
    def has_grown(self) -> bool:
        """Whether the end is too high."""
        return self.last > self.allowed


def warm_up_s(hours: float) -> float:
    """Ten minutes of an hour or more, the same share of less, but until the state has its size.

    >>> warm_up_s(2), warm_up_s(0.5), warm_up_s(0.1)
    (600.0, 300.0, 180.0)
    """
    return min(WARM_UP_S, max(LEAST_WARM_UP_S, hours * 3600 * SHORT_WARM_UP))


def judged(samples: Sequence[Sample], after_s: float) -> dict[str, Ends]:
    """Every series after the warm-up: its first and its last quarter. Empty if there are too few samples to say anything.

    Counts are compared by medians. Memory rises until a collector runs, so its lower fifth is compared.
    """
    rest = [sample for sample in samples if sample["at_s"] >= after_s]
    quarter = len(rest) // 4
    if len(rest) < LEAST_SAMPLES:
        return {}
    names = sorted({name for sample in rest for name in sample if name != "at_s"})
    return {name: _ends(name, rest[:quarter], rest[-quarter:]) for name in names}


def noticed_per_hour(ends: Mapping[str, Ends], samples: Sequence[Sample], after_s: float) -> dict[str, float]:
    """The smallest steady leak per hour that would have been noticed in each series."""
    rest = [sample["at_s"] for sample in samples if sample["at_s"] >= after_s]
    quarter = len(rest) // 4
    if not ends:
        return {}
    apart_s = statistics.median(rest[-quarter:]) - statistics.median(rest[:quarter])
    return {name: round((found.allowed - found.first) * 3600 / apart_s, 1) for name, found in ends.items()}


def _ends(name: str, first: Sequence[Sample], last: Sequence[Sample]) -> Ends:
    kind, _, figure = name.rpartition("/")
    level = _lower if figure == "memory_bytes" else statistics.median
    before, after = (level([sample.get(name, 0.0) for sample in part]) for part in (first, last))
    if figure == "memory_bytes" and kind.endswith("JVM"):
        return Ends(before, after, (1 + SHARE_OF_JVM) * before + ALLOWED_OF_JVM_BYTES)
    allowed = ALLOWED_OF_CLUSTER_FILES if name == "cluster/files" else ALLOWED[figure]
    return Ends(before, after, (1 + SHARE) * before + allowed)


def _lower(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 5]
