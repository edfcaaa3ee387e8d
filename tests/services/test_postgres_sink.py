"""The PostgreSQL sink against a real server."""

import itertools
from datetime import UTC, date, datetime, time
from decimal import Decimal

import polars as pl
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resurge.connectors.postgres.sink import PostgresSink
from resurge.errors import SinkError
from resurge.testing.sink_conformance import JOB, QUERY, SCHEMA, check_sink, rows_for
from tests.support import services


def execute(dsn: str, statement: str) -> list[tuple]:
    with psycopg.connect(dsn) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def staged(sink: PostgresSink, epoch: int, part: str = "p0", rows: int = 3):
    return sink.stage(QUERY, epoch, part, "attempt", rows_for(epoch, part, rows))


def opened(table: str, dsn: str, **how) -> PostgresSink:
    sink = PostgresSink(table, dsn, **how)
    sink.open(QUERY, SCHEMA, JOB)
    return sink


@pytest.mark.parametrize("key", [(), ("key",)], ids=["append", "upsert"])
def test_the_sink_keeps_the_laws_of_sinks(postgres, unique, key):
    """Staging, publishing, repeating, abandoning and crashing show each committed row once."""
    numbers = itertools.count()

    def make() -> PostgresSink:
        return PostgresSink(f"laws_{unique[-6:]}_{len(key)}_{next(numbers)}", postgres, key)

    def read(sink: PostgresSink) -> pl.DataFrame:
        rows = execute(postgres, f"SELECT key, count FROM {sink.table}")
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")

    if key:  # two jobs that write rows of the same key to one table replace each other's
        from resurge.testing import sink_conformance

        laws = [law for law in sink_conformance.LAWS if law is not sink_conformance.another_job_is_refused_or_shown]
        for law in laws:
            trial = sink_conformance.SinkTrial(make(), read, lambda sink: PostgresSink(sink.table, postgres, key), law.__doc__)
            trial.sink.open(QUERY, SCHEMA, JOB)
            law(trial)
        return
    check_sink(make, read, lambda sink: PostgresSink(sink.table, postgres, key))


EVERY_TYPE = {
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127),
    "whole": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(width=64, allow_nan=False),
    "text": st.text(st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"]), max_size=4),
    "data": st.binary(max_size=4),
    "day": st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    "clock": st.times(),
    "moment": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    "instant": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    "price": st.decimals(min_value="-99999999.99", max_value="99999999.99", places=2),
    "share": st.decimals(min_value="-0.99999", max_value="0.99999", places=5),
    "huge": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "tags": st.lists(st.text('ab"\\é', max_size=2), max_size=2),
}
KINDS = {
    "flag": pl.Boolean,
    "tiny": pl.Int8,
    "whole": pl.Int64,
    "real": pl.Float64,
    "text": pl.String,
    "data": pl.Binary,
    "day": pl.Date,
    "clock": pl.Time,
    "moment": pl.Datetime("us"),
    "instant": pl.Datetime("us", "UTC"),
    "price": pl.Decimal(10, 2),
    "share": pl.Decimal(5, 5),
    "huge": pl.Decimal(38, 0),
    "tags": pl.List(pl.String),
}
ROWS = st.lists(st.tuples(*(st.one_of(kind, st.none()) for kind in EVERY_TYPE.values())), max_size=4)


def test_every_type_comes_back_as_it_was_written(postgres, unique):
    """Nulls, empty values and every type: what the server reads is what the query made."""
    table = f"types_{unique[-6:]}"
    sink = PostgresSink(table, postgres)
    sink.open("q", pl.Schema(KINDS), JOB)
    epochs = itertools.count(1)
    with psycopg.connect(postgres, autocommit=True) as connection:

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(ROWS)
        def check(rows):
            connection.execute(f"TRUNCATE {table}")
            frame = pl.DataFrame(rows, schema=KINDS, orient="row")
            sink.publish([sink.stage("q", next(epochs), "p", "a", frame)])
            found = connection.execute(f"SELECT * FROM {table}").fetchall()
            assert found == rows or (not rows and not found)

        check()


def test_an_update_stream_replaces_rows_by_key(postgres, unique):
    """The last row of a key wins, within an epoch and from epoch to epoch, also when several epochs come at once."""
    sink = opened(f"upsert_{unique[-6:]}", postgres, key="key")

    def part(epoch: int, *rows: tuple[str, int]):
        return sink.stage(QUERY, epoch, "p0", "a", pl.DataFrame(rows, schema=SCHEMA, orient="row"))

    sink.publish([part(1, ("a", 1), ("b", 1), ("a", 2))])
    sink.publish([part(2, ("a", 3), ("c", 3)), part(3, ("a", 4))])
    sink.publish([part(2, ("a", 3), ("c", 3))])
    assert sorted(execute(postgres, f"SELECT key, count FROM {sink.table}")) == [("a", 4), ("b", 1), ("c", 3)]


def test_a_table_that_does_not_fit_is_refused(postgres, unique):
    """On open, with the column and both types named."""
    table = f"fits_{unique[-6:]}"
    execute(postgres, f"CREATE TABLE {table} (key varchar(50), count int4)")
    with pytest.raises(SinkError, match=r"column 'count' is int4, but the query's rows are int8"):
        opened(table, postgres)
    execute(postgres, f"ALTER TABLE {table} DROP COLUMN count")
    with pytest.raises(SinkError, match=r"has no column 'count'"):
        opened(table, postgres)
    execute(postgres, f"ALTER TABLE {table} ADD COLUMN count int8")
    opened(table, postgres)
    with pytest.raises(SinkError, match="no unique or exclusion constraint"):
        opened(table, postgres, key="key")
    with pytest.raises(SinkError, match=r"'span' is Duration"):
        PostgresSink(table, postgres).open(QUERY, pl.Schema({"span": pl.Duration("us")}), JOB)


def test_a_column_that_would_round_decimals_is_refused(postgres, unique):
    """One with as many digits on both sides of the point is accepted."""
    schema = pl.Schema({"amount": pl.Decimal(10, 2)})
    for column, fits in (("numeric", True), ("numeric(14,4)", True), ("numeric(10,1)", False), ("numeric(10,3)", False)):
        table = f"digits_{unique[-6:]}_{len(column)}_{column[-2:-1]}"
        execute(postgres, f"CREATE TABLE {table} (amount {column})")
        sink = PostgresSink(table, postgres)
        if fits:
            sink.open(QUERY, schema, JOB)
            continue
        with pytest.raises(SinkError, match=r"column 'amount' is numeric\(10,\d\), but the query's rows are numeric\(10,2\)"):
            sink.open(QUERY, schema, JOB)


def test_text_that_the_server_cannot_store_is_refused_before_the_commit(postgres, unique):
    """A NUL character in text, also inside a list; a backslash before u0000 is no NUL."""
    sink = PostgresSink(f"nul_{unique[-6:]}", postgres)
    schema = pl.Schema({"text": pl.String, "tags": pl.List(pl.String)})
    sink.open(QUERY, schema, JOB)
    for column, row in (("text", ("a\0b", ["x"])), ("tags", ("ab", ["\0"]))):
        with pytest.raises(SinkError, match=f"column '{column}' has text with a NUL character"):
            sink.stage(QUERY, 1, "p0", "a", pl.DataFrame([row], schema=schema, orient="row"))
    row = ("ab", ["\\u0000"])
    sink.publish([sink.stage(QUERY, 1, "p0", "a", pl.DataFrame([row], schema=schema, orient="row"))])
    assert execute(postgres, f"SELECT text, tags FROM {sink.table}") == [row]


def test_a_server_restarted_in_the_middle_is_waited_for(postgres, unique):
    """A connection that broke is made again, and what was published before is not published twice."""
    sink = opened(f"restart_{unique[-6:]}", postgres)
    sink.publish([staged(sink, 1)])
    services.restart("postgres")
    sink.publish([staged(sink, 1), staged(sink, 2)])
    assert execute(postgres, f"SELECT count(*) FROM {sink.table}") == [(6,)]


def test_two_drivers_never_write_the_same_part(postgres, unique):
    """A stale driver that publishes what the new one has published changes nothing."""
    old, new = opened(f"stale_{unique[-6:]}", postgres), opened(f"stale_{unique[-6:]}", postgres)
    new.publish([staged(new, 1), staged(new, 2)])
    old.publish([staged(old, 1), staged(old, 2)])
    assert execute(postgres, f"SELECT count(*) FROM {new.table}") == [(6,)]


def test_what_is_remembered_does_not_grow(postgres, unique):
    """Parts of forgotten epochs leave the note, and are still not shown again."""
    sink = opened(f"notes_{unique[-6:]}", postgres)
    for epoch in range(1, 6):
        sink.publish([staged(sink, epoch, f"attempt-{epoch}")])
        sink.forget(QUERY, epoch - 1)
    sink.publish([staged(sink, 1, "attempt-1")])
    assert execute(postgres, f"SELECT count(*) FROM {sink.table}") == [(15,)]


def test_passwords_never_reach_errors(unique):
    """The error names host, port and database only."""
    sink = PostgresSink("t", "postgresql://me:secret@127.0.0.1:1/db", retry_timeout_s=0)
    with pytest.raises(SinkError, match=r"PostgreSQL at 127.0.0.1:1/db could not prepare table 't'") as told:
        sink.open(QUERY, SCHEMA, JOB)
    assert "secret" not in str(told.value)
    assert "secret" not in repr(sink.database)


def test_a_moment_is_the_same_moment(postgres, unique):
    """As the server itself shows it."""
    table = f"moment_{unique[-6:]}"
    sink = PostgresSink(table, postgres)
    frame = pl.DataFrame({"at": [datetime(2024, 2, 29, 23, 59, 59, 1)], "clock": [time(1, 2, 3)]})
    sink.open("q", frame.schema, JOB)
    sink.publish([sink.stage("q", 1, "p", "a", frame)])
    assert execute(postgres, f"SELECT at::text, clock::text FROM {table}") == [("2024-02-29 23:59:59.000001", "01:02:03")]
