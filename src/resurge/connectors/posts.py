"""Generated posts with hashtags, as a stream or as Parquet files, with the published statistics."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from resurge.connectors.contracts import Source, SourceLog
from resurge.connectors.paced import Pace, PacedReader, RowRange
from resurge.connectors.post_generator import (
    BLOCK_POSTS,
    DEFAULT_ZIPF,
    PUBLISHED_DISTINCT_TAGS,
    PostGenerator,
    vocabulary_for,
)
from resurge.errors import TopologyError

POST_SCHEMA = pl.Schema({"time": pl.Datetime("us"), "user": pl.Int64(), "tags": pl.List(pl.String)})
FIRST_EVENT_US = 1_420_070_400_000_000  # 2015-01-01 00:00:00 UTC
EVENT_STEP_US = 1_000


@dataclass(frozen=True)
class PostSource(Source):
    """Posts as a pure function of their number; `posts` makes one."""

    pace: Pace
    generator: PostGenerator

    def schema(self) -> pl.Schema:
        return POST_SCHEMA

    def reader(self, log: SourceLog) -> "PostReader":
        return PostReader(self)

    def signature(self) -> str:
        return f"{super().signature()} {self.generator} at {self.pace.rows_per_second} posts/s"


def posts(
    posts_per_second: float | None = None,
    total: int | None = None,
    seed: int = 0,
    splits: int = 2,
    *,
    posts_per_epoch: int | None = None,
    zipf: float = DEFAULT_ZIPF,
    distinct: int = PUBLISHED_DISTINCT_TAGS,
) -> PostSource:
    """Posts with `time`, `user` and `tags` (1.57 on average; about `distinct` different ones in the first 569,382 posts).

    With posts_per_second a post's time is when it arrives. Without, posts come as fast as they are taken, posts_per_epoch at
    a time, and their times are 1 ms apart.
    """
    pace = Pace(posts_per_second, posts_per_epoch, total, splits, BLOCK_POSTS)
    pace.check("a posts source")
    return PostSource(pace, PostGenerator(seed, zipf, vocabulary_for(distinct, zipf)))


class PostReader(PacedReader):
    """Offset {"rows": n, "started_at": Unix seconds or None}: n posts since the start."""

    def __init__(self, source: PostSource) -> None:
        super().__init__("posts", source.pace)
        self.generator = source.generator

    def rows(self, split: RowRange) -> pl.DataFrame:
        paced = self.pace.rows_per_second is not None
        times_us = self.pace.arrivals_us(split) if paced else _event_times_us(split.first, split.last)
        users, tags = self.generator.users_and_tags(split.first, split.last)
        return pl.DataFrame([pl.Series("time", times_us).cast(pl.Datetime("us")), users, tags])


def write_posts(
    folder: str | Path,
    posts: int,
    posts_per_file: int,
    seed: int = 0,
    zipf: float = 1.3,
) -> list[Path]:
    """Write posts as Parquet files with columns `ts` (1 ms per post) and `tags`; a file appears when it is complete."""
    if posts < 0 or posts_per_file < 1:
        raise TopologyError(
            f"{posts} posts in files of {posts_per_file} were asked for; expected at least 0 in files of at least 1"
        )
    generator = PostGenerator(seed, zipf, PUBLISHED_DISTINCT_TAGS)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for number, first in enumerate(range(0, posts, posts_per_file)):
        last = min(posts, first + posts_per_file)
        times = pl.Series("ts", _event_times_us(first, last)).cast(pl.Datetime("us"))
        path = target / f"posts-{number:05d}.parquet"
        unfinished = path.with_name(path.name + ".tmp")
        frame = pl.DataFrame([times, generator.users_and_tags(first, last)[1]])
        frame.write_parquet(unfinished, compression="snappy", row_group_size=131_072)
        unfinished.rename(path)
        written.append(path)
    return written


def _event_times_us(first: int, last: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.arange(first, last, dtype=np.int64) * EVENT_STEP_US + FIRST_EVENT_US
