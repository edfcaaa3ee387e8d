"""The laws of a sink as checks that anyone can run against their own: `check_sink(make_sink, read_rows)`.

    def test_my_sink_keeps_the_laws(tmp_path):
        folders = itertools.count()
        check_sink(lambda: MySink(tmp_path / str(next(folders))), lambda sink: read_everything(sink.path))
"""

import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import polars as pl

from resurge.connectors.contracts import Sink, StagedPart

AnySink = TypeVar("AnySink", bound=Sink)
QUERY = "conformance"
SCHEMA = pl.Schema({"key": pl.String, "count": pl.Int64})


def check_sink(
    make_sink: Callable[[], AnySink],
    read_rows: Callable[[AnySink], pl.DataFrame | int],
    restart: Callable[[AnySink], AnySink] = lambda sink: sink,
) -> None:
    """Run every law; an AssertionError says which one does not hold.

    `make_sink` makes a sink with an empty destination. `read_rows` reads all that is visible there: rows with the columns of
    SCHEMA (others are ignored), or just their number. `restart` makes the sink that a new driver process would have, for the
    same destination; a sink that lives in its process may be returned as it is.
    """
    for law in LAWS:
        _Check(make_sink(), read_rows, restart).run(law)


class _Check[AnySink: Sink]:
    pass
