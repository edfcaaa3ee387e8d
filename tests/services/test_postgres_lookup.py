"""Lookup joins from a table of a real PostgreSQL."""

from datetime import date
from decimal import Decimal

import polars as pl
import psycopg
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.lookup_tables import postgres_lookup
from resurge.connectors.sinks import MemorySink
from resurge.errors import ResurgeError, SourceError
from resurge.runtime.worker import lookups
from tests.support import services
from tests.support.engines import Bench, finish, started
from tests.support.scripted import scripted

EPOCHS = [[pl.DataFrame({"shop": ["north", "south", "east"]})] for _ in range(6)]


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[arg-type]


@pytest.fixture
def table(postgres, unique) -> str:
    """A table of shops in a schema of its own, with a name that must be quoted."""
    schema = f"shops_{unique[-6:]}"
    execute(
        postgres,
        f"CREATE SCHEMA {schema}",
        f'CREATE TABLE {schema}."Shops" (shop text PRIMARY KEY, manager text, rent numeric(10,2), since date)',
        f"INSERT INTO {schema}.\"Shops\" VALUES ('north', 'Ada', 1200.50, '2020-02-29'), ('south', NULL, NULL, NULL)",
    )
    return f"{schema}.Shops"


def quoted(table: str) -> str:
    return ".".join(f'"{part}"' for part in table.split("."))


def topology(table: str, dsn: str, sink: MemorySink):
    job = TopologyBuilder("lookups", key_groups=2)
    known = postgres_lookup(table, dsn, {"shop": pl.String, "manager": pl.String})
    rows = job.source("rows", scripted(EPOCHS))
    rows.lookup("managers", known, on="shop", refresh_epochs=3).query("all", sink=sink)
    return job.build()


def test_values_come_as_the_schema_says(postgres, table):
    """Numbers, dates and nulls, from a quoted name in a schema."""
    wanted = {"shop": pl.String, "manager": pl.String, "rent": pl.Decimal(10, 2), "since": pl.Date}
    found = postgres_lookup(table, postgres, wanted).read().sort("shop")
    assert found.schema == pl.Schema(wanted)
    assert found.rows() == [("north", "Ada", Decimal("1200.50"), date(2020, 2, 29)), ("south", None, None, None)]


def test_a_replayed_epoch_sees_the_rows_that_it_saw(postgres, table, tmp_path):
    """The table changes, the driver dies and the server is killed and started again; epochs of the same version see what they saw."""
    bench = Bench(tmp_path)
    with started(bench.engine(topology(table, postgres, bench.sink), checkpoint_interval=0)) as engine:
        engine.step()
    execute(postgres, f"UPDATE {quoted(table)} SET manager = 'Bob' WHERE shop = 'north'")
    services.restart("postgres")
    lookups._held.clear()  # another process
    finish(bench.engine(topology(table, postgres, bench.sink), checkpoint_interval=0), drain=False)
    shown = bench.sink.table("all", epoch=True)
    north = shown.filter(pl.col("shop") == "north").select("epoch", "manager").rows()
    assert north == [(1, "Ada"), (2, "Ada"), (3, "Bob"), (4, "Bob"), (5, "Bob"), (6, "Bob")]
    assert shown.filter(pl.col("shop") == "east")["manager"].to_list() == [None] * 6


def test_tables_that_do_not_fit_are_told(postgres, table, tmp_path):
    """A table or column that is not there, a type that does not fit, and two rows of one key; never a password."""
    with pytest.raises(SourceError, match=r'could not read a lookup table: relation "no_such" does not exist'):
        postgres_lookup("no_such", postgres, {"shop": pl.String}).read()
    with pytest.raises(SourceError, match=r'column "city" does not exist'):
        postgres_lookup(table, postgres, {"shop": pl.String, "city": pl.String}).read()
    with pytest.raises(SourceError, match=r"lookup table .*Shops.* does not fit the schema .*'manager'"):
        postgres_lookup(table, postgres, {"shop": pl.String, "manager": pl.Int64}).read()
    execute(
        postgres,
        f'ALTER TABLE {quoted(table)} DROP CONSTRAINT "Shops_pkey"',
        f"INSERT INTO {quoted(table)} VALUES ('north', 'Eve', 0, NULL)",
    )
    bench = Bench(tmp_path)
    with pytest.raises(
        ResurgeError, match="lookup 'managers': its table has several rows for shop 'north'; expected at most one"
    ):
        finish(bench.engine(topology(table, postgres, bench.sink)), drain=False)
