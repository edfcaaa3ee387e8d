"""Keep a query's output in a database of your own, each row once, whatever is killed when.

A callback may be given a part again after a crash, and an epoch's parts apart. So it stores the identity of each part in the
same transaction as the part's rows, and skips an identity that is there. Here the callback dies once, right after it has
stored something; the job is run again, and the totals are right.
"""

import sqlite3
import tempfile
from pathlib import Path

from resurge import CallbackSink, CommittedPart, TopologyBuilder, count, posts, run
from resurge.errors import SinkError

folder = Path(tempfile.mkdtemp())
database = sqlite3.connect(folder / "counts.db", check_same_thread=False)
database.execute("CREATE TABLE applied (identity TEXT PRIMARY KEY)")
database.execute("CREATE TABLE totals (tag TEXT PRIMARY KEY, n INTEGER)")
crashes = [3]


def store(part: CommittedPart) -> None:
    """Add a part's counts to the totals, unless that was done before."""
    with database:
        new = database.execute("INSERT OR IGNORE INTO applied VALUES (?)", [part.identity]).rowcount
        if new:
            rows = part.frame.select("tag", "n").rows()
            database.executemany("INSERT INTO totals VALUES (?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n", rows)
    if part.epoch in crashes:
        crashes.remove(part.epoch)
        raise ConnectionError("lost right after the transaction")


def topology() -> TopologyBuilder:
    """How often each hashtag came, in windows of ten seconds."""
    job = TopologyBuilder("counted")
    source = job.source("posts", posts(total=30_000, posts_per_epoch=5_000, seed=7), event_time="time")
    tags = source.flat_map("hashtags", lambda table: table.select("time", tag="tags").explode("tag").drop_nulls())
    counts = tags.window("counts", "10s", key="tag", emit="final", n=count())
    counts.query(sink=CallbackSink(store, per_part=True))
    return job


if __name__ == "__main__":
    try:
        run(topology(), checkpoint=folder / "job", interval=0, until_idle=True, drain=True)
    except SinkError as error:
        print(str(error).split(";")[0])
    run(topology(), checkpoint=folder / "job", interval=0, until_idle=True, drain=True)
    print("hashtags:", database.execute("SELECT sum(n) FROM totals").fetchone()[0])
    for tag, n in database.execute("SELECT tag, n FROM totals ORDER BY n DESC, tag LIMIT 3"):
        print(tag, n)
