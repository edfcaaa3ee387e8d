"""Event times: rows that have none, and how far a node of the program has come."""

from collections.abc import Mapping

import polars as pl

from resurge.errors import BadRowError
from resurge.operators.program import Vertex
from resurge.operators.stateless import SourceOperator


def watermark_us(vertex: Vertex, maxima_us: Mapping[str, int]) -> int | None:
    """A vertex's watermark: the lowest of its sources', each less what may come late."""
    if not vertex.delays or any(source not in maxima_us for source, _ in vertex.delays):
        return None
    return min(maxima_us[source] - delay for source, delay in vertex.delays)


def without_time(good: pl.DataFrame, bad: pl.DataFrame, source: SourceOperator) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that the source takes, and the malformed ones, which fail the job unless the source routes them.

    A row without event time is malformed.
    """
    if bad.height and not source.routes_bad_rows:
        first = bad.row(0, named=True)
        raise BadRowError(
            f"source {source.name!r}: {bad.height} malformed rows, the first at {first['location']}: {first['row']} ({first['error']}); "
            "expected rows that fit the schema: mend them, or route bad rows to a side output with bad_rows='route'"
        )
    good = source.taken(good)
    if source.event_time is None or not good.get_column(source.event_time).null_count():
        return good, bad
    missing = good.filter(pl.col(source.event_time).is_null())
    if not source.routes_bad_rows:
        raise BadRowError(
            f"source {source.name!r}: {missing.height} rows have no event time in {source.event_time!r}, the first being "
            f"{missing.row(0, named=True)}; expected a time: leave them out with where=pl.col({source.event_time!r}).is_not_null(), or route them to a side output with "
            "bad_rows='route', both of the source"
        )
    described = pl.DataFrame(
        {
            "location": [source.name] * missing.height,
            "row": [str(row) for row in missing.iter_rows(named=True)],
            "error": [f"no event time in {source.event_time!r}"] * missing.height,
        },
        schema=bad.schema,
    )
    return good.filter(pl.col(source.event_time).is_not_null()), pl.concat([bad, described])
