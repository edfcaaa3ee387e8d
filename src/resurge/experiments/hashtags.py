"""The 15-query hashtag topology of INCREMENTAL: posts -> parser -> four sliding-window counts -> eleven that maintain them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.contracts import Sink, Source
from resurge.connectors.sinks import MemorySink
from resurge.experiments.hashtag_topology import MAINTAINED, PRIORITIES
from resurge.model.topology import Topology
from resurge.operators.aggregates import count

WINDOWS_S = {"O1": (10, 5), "O2": (20, 5), "O3": (30, 10), "O4": (60, 20)}


@dataclass(frozen=True)
class Hashtags:
    """The topology and the sinks that hold its output."""

    topology: Topology
    sinks: Mapping[str, Sink]


def hashtags(
    source: Source,
    *,
    key_groups: int = 2,
    make_sink: Callable[[str], Sink] | None = None,
    windows_s: Mapping[str, tuple[int, int]] = WINDOWS_S,
    retention: str = "1m",
) -> Hashtags:
    """The topology over a source of posts; windows have a size and a slide, and are maintained for a while."""
    job = TopologyBuilder("hashtags", key_groups=key_groups)
    tags = job.source("posts", source, event_time="time").flat_map("parser", parsed)
    sinks = {name: make_sink(name) if make_sink else MemorySink() for name in (*windows_s, *MAINTAINED)}
    windows = {}
    for name, (size, slide) in windows_s.items():
        windows[name] = tags.window(name, f"{size}s", f"{slide}s", key="tag", n=count())
        windows[name].query(priority=PRIORITIES[name], sink=sinks[name])
    for name, inputs in MAINTAINED.items():
        kept = job.maintain(name, *(windows[w] for w in inputs), key="tag", identity="window_start", retention=retention)
        kept.query(priority=PRIORITIES[name], sink=sinks[name])
    return Hashtags(job.build(), sinks)


def parsed(posts: pl.DataFrame) -> pl.DataFrame:
    """One row per hashtag."""
    return posts.select("time", pl.col("tags").alias("tag")).explode("tag").drop_nulls("tag")


def expected(posts: pl.DataFrame, windows_s: Mapping[str, tuple[int, int]] = WINDOWS_S) -> dict[str, pl.DataFrame]:
    """What every query must have counted in the end, computed by DuckDB in one go: tag, stream, window start, n."""
    counts = {name: _counted(posts, size, slide, name) for name, (size, slide) in windows_s.items()}
    found = dict(counts)
    for name, inputs in MAINTAINED.items():
        found[name] = pl.concat([counts[window] for window in inputs]).sort("stream", "tag", "window_start")
    return found


def _counted(posts: pl.DataFrame, size_s: int, slide_s: int, name: str) -> pl.DataFrame:
    # Executors import this module for the parser, and need no DuckDB.
    import duckdb

    connection = duckdb.connect()
    connection.register("posts", posts.select(pl.col("time").dt.epoch("us").alias("moment"), "tags").to_arrow())
    counted = connection.sql(
        """
        with tags as (select moment, unnest(tags) as tag from posts),
             hits as (select tag, (moment // $slide - back) * $slide as start, moment
                      from tags, (select unnest(range(0, $most)) as back))
        select $name as stream, tag, start, count(*) as n from hits where moment < start + $size group by tag, start
        """,
        params={"slide": slide_s * 1_000_000, "size": size_s * 1_000_000, "most": -(-size_s // slide_s), "name": name},
    )
    rows = counted.to_arrow_table()
    connection.close()
    counts = pl.DataFrame(pl.from_arrow(rows))
    start = pl.col("start").cast(pl.Int64).cast(pl.Datetime("us")).alias("window_start")
    return counts.select("stream", "tag", start, pl.col("n").cast(pl.Int64)).sort("stream", "tag", "window_start")


def counted(name: str, shown: pl.DataFrame) -> pl.DataFrame:
    """The last count that a query showed for every tag and window."""
    if "stream" not in shown.columns:
        shown = shown.with_columns(pl.lit(name).alias("stream"))
    keys = ["stream", "tag", "window_start"]
    return shown.unique(subset=keys, keep="last", maintain_order=True).select(*keys, "n").sort(keys)


def differences(
    posts: pl.DataFrame, shown: Mapping[str, pl.DataFrame], windows_s: Mapping[str, tuple[int, int]] = WINDOWS_S
) -> dict[str, int]:
    """For each query, how many counts are wrong, missing or too many; empty if all is right."""
    found = {}
    for name, wanted in expected(posts, windows_s).items():
        got = counted(name, shown[name])
        wrong = wanted.join(got, on=wanted.columns, how="anti", nulls_equal=True).height
        wrong += got.join(wanted, on=wanted.columns, how="anti", nulls_equal=True).height
        if wrong:
            found[name] = wrong
    return found
