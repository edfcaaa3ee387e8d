"""Which hashtags are trending: two sliding windows over one stream of posts, and two queries, one of them more valuable.

Run it with `python examples/trending_hashtags.py`, or with `resurge run examples/trending_hashtags.py --until-idle --drain`.
"""

import polars as pl

from resurge import CallbackSink, TopologyBuilder, count, posts, run


def hashtags(table: pl.DataFrame) -> pl.DataFrame:
    """One row per hashtag of a post."""
    return table.select("time", tag="tags").explode("tag")


def show(epoch: int, counts: pl.DataFrame) -> None:
    """The three most frequent hashtags of every window that this epoch closed."""
    for (start, end), window in counts.sort("window_start").group_by("window_start", "window_end", maintain_order=True):
        top = window.sort("n", "tag", descending=[True, False]).head(3)
        print(f"{start:%H:%M:%S} to {end:%H:%M:%S}:", ", ".join(f"{tag} {n}" for tag, n in top.select("tag", "n").iter_rows()))


topology = TopologyBuilder("trending")
source = topology.source("posts", posts(total=60_000, posts_per_epoch=10_000, seed=7), event_time="time")
tags = source.flat_map("hashtags", hashtags)
tags.window("now", "10s", "5s", key="tag", emit="final", n=count()).query(priority=8, sink=CallbackSink(show))
tags.window("lately", "30s", "15s", key="tag", emit="final", n=count()).query(priority=2, sink=CallbackSink(show))

if __name__ == "__main__":
    run(topology, interval=0, until_idle=True, drain=True)
