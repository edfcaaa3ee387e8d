"""A run's history in a bounded number of bins: when they are full, neighbours are merged and each bin becomes twice as long."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

MOST_BINS = 240


class Health(IntEnum):
    """How a query did in a bin of time; of several the worst counts."""

    UNKNOWN = 0
    LIVE = 1
    SLOW = 2
    PARTLY = 3
    DOWN = 4


@dataclass(slots=True)
class Bin:
    """What happened in one stretch of time; what was not told is None."""

    rows_per_s: float | None = None
    latency_p50_s: float | None = None
    latency_max_s: float | None = None
    lag_rows: int | None = None
    state_bytes: int | None = None
    live_queries: int | None = None
    nodes: int | None = None
    epoch_s: float | None = None

    def merged(self, later: "Bin") -> "Bin":
        """Both as one: rates are averaged, durations are the longest, levels are the last."""
        return Bin(
            _mean(self.rows_per_s, later.rows_per_s),
            _longest(self.latency_p50_s, later.latency_p50_s),
            _longest(self.latency_max_s, later.latency_max_s),
            _last(self.lag_rows, later.lag_rows),
            _last(self.state_bytes, later.state_bytes),
            _last(self.live_queries, later.live_queries),
            _last(self.nodes, later.nodes),
            _longest(self.epoch_s, later.epoch_s),
        )


@dataclass
class Series:
    """Bins from the first event on, and a strip of one byte per bin for every query."""

    from_s: float
    width_s: float = 1.0
    bins: list[Bin] = field(default_factory=lambda: [Bin()])
    strips: dict[str, bytearray] = field(default_factory=dict)
    now: dict[str, Health] = field(default_factory=dict)

    def at(self, moment_s: float) -> Bin:
        """The bin of a moment; bins up to it are filled with how queries are now. Earlier moments count into the last bin."""
        while moment_s - self.from_s >= self.width_s * MOST_BINS:
            self._halve()
        wanted = max(0, int((moment_s - self.from_s) / self.width_s))
        while len(self.bins) <= wanted:
            before = self.bins[-1]
            self.bins.append(Bin(live_queries=before.live_queries, nodes=before.nodes))
            for query, strip in self.strips.items():
                strip.append(self.now.get(query, Health.UNKNOWN))
        return self.bins[-1]

    def mark(self, moment_s: float, health: Iterable[tuple[str, Health]]) -> None:
        """Note how queries are from a moment on."""
        self.at(moment_s)
        for query, value in health:
            self.now[query] = value
            strip = self.strips.setdefault(query, bytearray(len(self.bins)))
            strip[-1] = max(strip[-1], value)

    def columns(self) -> dict[str, list[float | None]]:
        """Everything that charts draw, by name, one value per bin."""
        return {
            "at_s": [self.from_s + (index + 0.5) * self.width_s for index in range(len(self.bins))],
            "rows_per_s": [known.rows_per_s for known in self.bins],
            "latency_p50_s": [known.latency_p50_s for known in self.bins],
            "latency_max_s": [known.latency_max_s for known in self.bins],
            "lag_rows": [known.lag_rows for known in self.bins],
            "state_bytes": [known.state_bytes for known in self.bins],
            "live_queries": [known.live_queries for known in self.bins],
            "nodes": [known.nodes for known in self.bins],
            "epoch_s": [known.epoch_s for known in self.bins],
        }

    def strip_texts(self) -> dict[str, str]:
        """Every query's strip as digits, one per bin."""
        return {query: "".join(map(str, strip)) for query, strip in self.strips.items()}

    def _halve(self) -> None:
        if len(self.bins) % 2:
            self.bins.append(Bin())
            for strip in self.strips.values():
                strip.append(strip[-1])
        self.bins = [first.merged(second) for first, second in list(pairwise(self.bins))[::2]]
        self.strips = {
            query: bytearray(max(first, second) for first, second in list(pairwise(strip))[::2])
            for query, strip in self.strips.items()
        }
        self.width_s *= 2


def _mean(first: float | None, second: float | None) -> float | None:
    known = [value for value in (first, second) if value is not None]
    return sum(known) / len(known) if known else None


def _longest(first: float | None, second: float | None) -> float | None:
    known = [value for value in (first, second) if value is not None]
    return max(known) if known else None


def _last(first: int | None, second: int | None) -> int | None:
    return second if second is not None else first
