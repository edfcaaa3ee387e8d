"""Tables that a lookup join enriches rows from: PostgreSQL, Parquet files or a Delta table."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from resurge.connectors.extras import check_extra
from resurge.connectors.frames import conform
from resurge.connectors.locations import is_local, plain_location
from resurge.connectors.postgres.connection import Connection, Database
from resurge.errors import SourceError


@dataclass(frozen=True)
class LookupTable:
    """A table with a schema that is known before anything runs; `read` reads it as it is now, with at most a row per key."""

    columns: pl.Schema

    def schema(self) -> pl.Schema:
        """Its columns."""
        return self.columns

    def read(self) -> pl.DataFrame:
        """All its rows."""
        raise NotImplementedError


@dataclass(frozen=True)
class PostgresLookup(LookupTable):
    """A table or a query of PostgreSQL."""

    database: Database
    statement: str

    def read(self) -> pl.DataFrame:
        """The rows as the server has them now."""
        connection = Connection(self.database, SourceError)
        try:
            rows = connection.transaction("read a lookup table", lambda cursor: cursor.execute(self.statement).fetchall())
        finally:
            connection.close()
        try:
            return pl.DataFrame(
                [pl.Series(name, [row[index] for row in rows], kind) for index, (name, kind) in enumerate(self.columns.items())]
            )
        except (pl.exceptions.PolarsError, TypeError) as error:
            raise SourceError(
                f"lookup table ({self.statement}) does not fit the schema {dict(self.columns)}: {error}; correct the schema"
            ) from error


@dataclass(frozen=True)
class FileLookup(LookupTable):
    """Parquet files, or the newest version of a Delta table."""

    location: str
    is_delta: bool = False

    def read(self) -> pl.DataFrame:
        """The rows as they are now."""
        found = pl.read_delta(self.location) if self.is_delta else pl.read_parquet(self.location)
        return conform(found, self.columns)


def postgres_lookup(table: str, dsn: str, schema: Mapping[str, Any], *, retry_timeout_s: float = 120.0) -> PostgresLookup:
    """These columns of a PostgreSQL table."""
    database = Database.of(dsn, retry_timeout_s, f"postgres_lookup({table!r})")
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in schema)
    where = ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))
    return PostgresLookup(pl.Schema(schema), database, f"SELECT {names} FROM {where}")


def parquet_lookup(location: str | os.PathLike[str], schema: Mapping[str, Any] | None = None) -> FileLookup:
    """Parquet files of a path or glob; the schema is read from them unless it is given."""
    where = plain_location(location)
    columns = pl.Schema(schema) if schema is not None else pl.scan_parquet(where).collect_schema()
    return FileLookup(columns, where)


def delta_lookup(location: str | os.PathLike[str], schema: Mapping[str, Any] | None = None) -> FileLookup:
    """A Delta table, each version of the lookup at the table's newest version."""
    check_extra("deltalake", "delta", f"delta_lookup({os.fspath(location)!r})")
    where = plain_location(location) if is_local(os.fspath(location)) else os.fspath(location)
    columns = pl.Schema(schema) if schema is not None else pl.scan_delta(where).collect_schema()
    return FileLookup(columns, where, is_delta=True)
