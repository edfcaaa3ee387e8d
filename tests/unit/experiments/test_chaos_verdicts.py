"""Chaos sees what it is there to see: rows that are missing and parts that are published twice."""

import polars as pl

from resurge.connectors.contracts import JobReference
from resurge.experiments.chaos import EveryPublication, compare

SCHEMA = pl.Schema({"tag": pl.String})


def published(times: int) -> pl.DataFrame:
    """What the sink has after one part was published so many times."""
    sink = EveryPublication()
    sink.open("counts", SCHEMA, JobReference("1", "chaos", "memory://chaos"))
    part = sink.stage("counts", 1, "0-00000", "a", pl.DataFrame({"tag": ["a", "b"]}))
    for _ in range(times):
        sink.publish([part])
    return sink.table(epoch=True)


def test_a_part_that_is_published_twice_counts_as_duplicated_rows():
    """The sink drops no repetition."""
    assert compare({"counts": published(2)}, {"counts": published(1)}) == (0, 2)


def test_a_part_that_is_never_published_counts_as_lost_rows():
    """The other direction."""
    assert compare({"counts": published(0)}, {"counts": published(1)}) == (2, 0)
