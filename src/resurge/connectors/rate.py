"""A rate generator: numbered rows that arrive evenly, with their arrival times."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from resurge.connectors.contracts import Source, SourceLog
from resurge.connectors.paced import Pace, PacedReader, RowRange

RATE_SCHEMA = pl.Schema({"arrival": pl.Datetime("us"), "value": pl.Int64()})


@dataclass(frozen=True)
class RateSource(Source):
    """Rows 0, 1, 2, ... at a steady rate; `rate` makes one."""

    pace: Pace

    def schema(self) -> pl.Schema:
        return RATE_SCHEMA

    def reader(self, log: SourceLog) -> "RateReader":
        return RateReader("rate", self.pace)

    def signature(self) -> str:
        return f"{super().signature()} at {self.pace.rows_per_second} rows/s"


def rate(rows_per_second: float, splits: int = 2) -> RateSource:
    """Rows with their arrival time (UTC) and their number. After a pause the missed rows come too, within the epoch's limit."""
    pace = Pace(rows_per_second, splits=splits)
    pace.check("a rate source")
    return RateSource(pace)


class RateReader(PacedReader):
    """Offset {"rows": n, "started_at": Unix seconds}: n rows since the start."""

    def rows(self, split: RowRange) -> pl.DataFrame:
        values = pl.Series("value", np.arange(split.first, split.last, dtype=np.int64))
        return pl.DataFrame([pl.Series("arrival", self.pace.arrivals_us(split)).cast(pl.Datetime("us")), values])
