"""The throughput workload: sliding-window counts of hashtags over the same generated files, in every system."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.files import files
from resurge.connectors.posts import write_posts
from resurge.connectors.sinks import DiscardSink
from resurge.model.topology import Topology
from resurge.operators.aggregates import count

FILES_PER_EPOCH = 4
WATERMARK_S = 10


@dataclass(frozen=True)
class Workload:
    """How many posts, in epochs of how many, counted by how many queries."""

    folder: Path
    posts: int = 4_000_000
    posts_per_epoch: int = 400_000
    cores: int = 2
    files_per_epoch: int | None = FILES_PER_EPOCH

    @property
    def epochs(self) -> int:
        """Whole epochs in the workload."""
        return self.posts // self.posts_per_epoch

    def write(self) -> None:
        """Generate the files; 1.57 hashtags a post, Zipf 1.3, one millisecond of event time per post."""
        write_posts(self.folder, self.posts, self.posts_per_epoch // FILES_PER_EPOCH, seed=0, zipf=1.3)

    def paths(self) -> list[Path]:
        """The files in order."""
        return sorted(self.folder.glob("*.parquet"))


def window_s(query: int) -> tuple[int, int]:
    """Size and slide of a query's window, in seconds."""
    return 10 + query, 5 + query


def exploded(posts: pl.DataFrame) -> pl.DataFrame:
    """One row per hashtag."""
    return posts.explode("tags").drop_nulls("tags").rename({"tags": "tag"})


def topology(workload: Workload, queries: int, key_groups: int | None = None) -> Topology:
    """The queries as a topology; without `key_groups`, with as many as a user gets who does not ask."""
    job = TopologyBuilder("throughput") if key_groups is None else TopologyBuilder("throughput", key_groups=key_groups)
    source = files(str(workload.folder / "*.parquet"), max_files_per_epoch=workload.files_per_epoch)
    tags = job.source("posts", source, event_time="ts", watermark=f"{WATERMARK_S}s").flat_map("tags", exploded)
    for query in range(queries):
        size, slide = window_s(query)
        tags.window(f"counts-{query}", f"{size}s", f"{slide}s", key="tag", n=count()).query(sink=DiscardSink())
    return job.build()


class Epoch(NamedTuple):
    """How many posts an epoch had, and how long it took."""

    posts: int
    took_s: float


def steady_rate(epochs: Sequence[Epoch]) -> float:
    """Posts per second, the median over the epochs of the last half of the posts."""
    half = sum(epoch.posts for epoch in epochs) / 2
    later = [epoch for index, epoch in enumerate(epochs) if sum(before.posts for before in epochs[: index + 1]) > half]
    return statistics.median(epoch.posts / epoch.took_s for epoch in later)
