"""Posts with hashtags as a pure function of seed and position, in any order and in any split.

569,382 posts had 894,098 hashtags, 309,555 of them distinct. A post has 1 tag plus a Poisson number with mean 0.5703; a tag's
rank in the vocabulary is Zipf-distributed. Positions are drawn in blocks of 4,096 from a counter-based generator (Philox:
seed = key, block = counter), so that any range costs only its own blocks.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from resurge.errors import TopologyError

PUBLISHED_POSTS = 569_382
PUBLISHED_TAGS = 894_098
PUBLISHED_DISTINCT_TAGS = 309_555
BLOCK_POSTS = 4096
USERS = 1_000_000
MAXIMUM_TAGS_PER_POST = 12
DEFAULT_ZIPF = 0.9
DEFAULT_VOCABULARY = 1_350_000
MAXIMUM_VOCABULARY = 4_000_000
_GUIDE_CELLS = 65_536

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class PostGenerator:
    """Which tags and which user each post has."""

    seed: int = 0
    zipf: float = DEFAULT_ZIPF
    vocabulary: int = DEFAULT_VOCABULARY

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise TopologyError(f"the seed of posts is {self.seed!r}; expected a whole number from 0 to 2**64 - 1")
        if not (math.isfinite(self.zipf) and self.zipf >= 0):
            raise TopologyError(f"the Zipf exponent of posts is {self.zipf!r}; expected a number of at least 0")
        if self.vocabulary < 1:
            raise TopologyError(f"the vocabulary of posts has {self.vocabulary!r} tags; expected at least 1")

    def users_and_tags(self, first: int, last: int) -> tuple[pl.Series, pl.Series]:
        """Users and tags of the posts from `first` up to, not including, `last`."""
        if last <= first:
            return pl.Series("user", [], pl.Int64), pl.Series("tags", [], pl.List(pl.String))
        blocks = range(first // BLOCK_POSTS, (last - 1) // BLOCK_POSTS + 1)
        users, counts, chances = (np.concatenate(drawn) for drawn in zip(*map(self._draw_block, blocks), strict=True))
        skipped, kept = first - blocks[0] * BLOCK_POSTS, last - first
        ends = np.concatenate(([0], np.cumsum(counts)))
        bounds = ends[skipped : skipped + kept + 1]
        ranks = _ranks(chances[bounds[0] : bounds[-1]], self.zipf, self.vocabulary)
        return pl.Series("user", users[skipped : skipped + kept]), _lists(ranks, bounds - bounds[0], self.vocabulary)

    def _draw_block(self, block: int) -> tuple[Integers, Integers, Floats]:
        random = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, block, 0, 0]))
        users = random.integers(0, USERS, BLOCK_POSTS)
        counts = np.searchsorted(_tag_count_chances(), random.random(BLOCK_POSTS), side="right") + 1
        return users, counts, random.random(int(counts.sum()))


def vocabulary_for(distinct: int, zipf: float) -> int:
    """How many tags there must be so that the published number of posts shows about `distinct` of them.

    >>> vocabulary_for(309_555, 0.9)
    1350000
    """
    if (distinct, zipf) == (PUBLISHED_DISTINCT_TAGS, DEFAULT_ZIPF):
        return DEFAULT_VOCABULARY
    low, high = distinct, 2 * distinct
    while 0 < high < MAXIMUM_VOCABULARY and expected_distinct(high, zipf) < distinct:
        low, high = high, 2 * high
    if not 1 <= distinct <= high <= MAXIMUM_VOCABULARY:
        raise TopologyError(
            f"{distinct} distinct tags were asked for with Zipf exponent {zipf}, but {PUBLISHED_TAGS} tags drawn so cannot show "
            "that many: choose a smaller exponent, or fewer distinct tags (at least 1)"
        )
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if expected_distinct(middle, zipf) >= distinct else (middle, high)
    return high


def expected_distinct(vocabulary: int, zipf: float) -> float:
    """How many different tags the published number of tags shows on average."""
    chances = np.diff(_cumulated(zipf, vocabulary), prepend=0.0)
    return float(-np.expm1(PUBLISHED_TAGS * np.log1p(-np.minimum(chances, 1 - 1e-12))).sum())


@cache
def _tag_count_chances() -> Floats:
    """Chance of at most 1, 2, 3, ... tags: one, plus a Poisson number."""
    mean = PUBLISHED_TAGS / PUBLISHED_POSTS - 1
    chances = [math.exp(-mean) * mean**more / math.factorial(more) for more in range(MAXIMUM_TAGS_PER_POST - 1)]
    return np.cumsum(chances)


def _cumulated(zipf: float, vocabulary: int) -> Floats:
    weights = np.arange(1, vocabulary + 1, dtype=np.float64) ** -zipf
    cumulated = np.cumsum(weights)
    return np.asarray(cumulated / cumulated[-1])


@cache
def _rank_tables(zipf: float, vocabulary: int) -> tuple[Floats, Integers]:
    """The cumulated chances, and for each of 65,536 equal cells of chance the first rank it may fall on."""
    cumulated = _cumulated(zipf, vocabulary)
    cells = np.arange(_GUIDE_CELLS + 1, dtype=np.float64) / _GUIDE_CELLS
    return cumulated, np.minimum(np.searchsorted(cumulated, cells, side="right"), vocabulary - 1)


def _ranks(chances: Floats, zipf: float, vocabulary: int) -> Integers:
    """The rank each chance falls on: from the guide where its cell has one rank only, else by binary search."""
    cumulated, guide = _rank_tables(zipf, vocabulary)
    cells = (chances * _GUIDE_CELLS).astype(np.int64)
    ranks = guide[cells]
    unsure = np.flatnonzero(ranks != guide[cells + 1])
    ranks[unsure] = np.minimum(np.searchsorted(cumulated, chances[unsure], side="right"), vocabulary - 1)
    return ranks


@cache
def _vocabulary(size: int) -> pl.Series:
    return pl.select(pl.concat_str(pl.lit("tag"), pl.int_range(size).cast(pl.String)).alias("tags")).to_series()


def _lists(ranks: Integers, bounds: Integers, vocabulary: int) -> pl.Series:
    values = _vocabulary(vocabulary).gather(ranks).rechunk().to_arrow(compat_level=pl.CompatLevel.newest())
    return pl.Series("tags", pa.LargeListArray.from_arrays(pa.array(bounds, pa.int64()), values))
