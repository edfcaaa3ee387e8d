"""A PostgreSQL table as a sink: an epoch's rows and the note of what was published are one transaction."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import polars as pl

from resurge.connectors.contracts import JobReference, Sink, StagedPart
from resurge.connectors.extras import client_library
from resurge.connectors.postgres.binary_copy import copy_message, copy_rows, postgres_type
from resurge.connectors.postgres.connection import Connection, Database
from resurge.connectors.published import PublishedParts, in_transactions
from resurge.errors import SinkError

NOTES_TABLE = "resurge_published"
MAX_ROWS_PER_TRANSACTION = 1_000_000
# Types whose binary form is the same.
_ALIKE = {"varchar": "text", "bpchar": "text", "timestamptz": "timestamp"}


class PostgresSink(Sink):
    """Appends every row to a table, or with a key replaces the row of the same key, as an update stream wants it.

    What was published is noted in the table `resurge_published`, in the transaction that writes the rows. The table is made if
    it is missing; one that is there must have the query's columns, and with a key a unique index on it. The key must include
    the key of the query, so that no two partitions write the same row.
    """

    def __init__(self, table: str, dsn: str, key: str | Sequence[str] = (), *, retry_timeout_s: float = 120.0) -> None:
        self.database = Database.of(dsn, retry_timeout_s, f"PostgresSink({table!r})")
        self.table = table
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self._connection = Connection(self.database, SinkError)
        self._columns: dict[str, tuple[str, ...]] = {}
        self._jobs: dict[str, str] = {}
        self._forgotten: dict[str, int] = {}

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        missing = [name for name in self.key if name not in schema]
        if missing:
            raise SinkError(f"table {self.table!r}: the key column {missing[0]!r} is not among the query's: {', '.join(schema)}")
        wanted = {name: postgres_type(name, kind) for name, kind in schema.items()}
        self._columns[query], self._jobs[query] = tuple(schema), job.id
        self._connection.transaction(f"prepare table {self.table!r}", lambda cursor: self._prepare(cursor, query, wanted))

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        rows = frame.unique(subset=list(self.key), keep="last", maintain_order=True) if self.key else frame
        return StagedPart(query, int(epoch), part, frame.height, payload=copy_rows(rows))

    def publish(self, parts: Sequence[StagedPart]) -> None:
        for query, mine in groupby(sorted(parts, key=lambda part: part.query), key=lambda part: part.query):
            for some in in_transactions(sorted(mine, key=lambda part: (part.epoch, part.part)), MAX_ROWS_PER_TRANSACTION):
                self._connection.transaction(
                    f"write to table {self.table!r}",
                    lambda cursor, q=query, s=some: self._publish(cursor, q, s),  # type: ignore[misc]
                )

    def forget(self, query: str, epoch: int) -> None:
        self._forgotten[query] = epoch

    def _publish(self, cursor: Any, query: str, parts: Sequence[StagedPart]) -> None:
        """Write what is not there yet; the note is locked, so that two drivers write one after the other."""
        where = (self._jobs[query], query, self.table)
        mine = "WHERE job = %s AND query = %s AND target = %s"
        cursor.execute(f"SELECT published FROM {NOTES_TABLE} {mine} FOR UPDATE", where)
        found = cursor.fetchone()
        if found is None:
            raise SinkError(
                f"{self.database}: the row of job {where[0]} and query {query!r} is gone from {NOTES_TABLE}: restore it"
            )
        published = PublishedParts.decode(found[0])
        new = published.unseen(parts)
        if not new:
            return
        for _, together in groupby(new, key=lambda part: part.epoch):
            self._write(cursor, query, [part.payload or b"" for part in together])
        after = published.after(new).forget(self._forgotten.get(query, -1))
        cursor.execute(f"UPDATE {NOTES_TABLE} SET published = %s {mine}", (after.encode().decode(), *where))

    def _write(self, cursor: Any, query: str, rows: Sequence[bytes]) -> None:
        """One epoch's rows: copied into the table, or beside it and then merged by key."""
        sql = client_library("psycopg.sql", "postgres", "PostgreSQL")
        target = _identifier(self.table)
        if self.key:
            target = sql.Identifier("resurge_staged")
            cursor.execute(
                sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WHERE false").format(
                    target, self._names(query), _identifier(self.table)
                )
            )
        with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(target, self._names(query))) as copy:
            for piece in copy_message(rows):
                copy.write(piece)
        if self.key:
            cursor.execute(self._merge(query, target))
            cursor.execute(sql.SQL("DROP TABLE {}").format(target))

    def _merge(self, query: str, staged: Any) -> Any:
        sql = client_library("psycopg.sql", "postgres", "PostgreSQL")
        others = [name for name in self._columns[query] if name not in self.key]
        changes = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        return sql.SQL("INSERT INTO {table} ({names}) SELECT {names} FROM {staged} ON CONFLICT ({key}) DO {action}").format(
            table=_identifier(self.table),
            names=self._names(query),
            staged=staged,
            key=sql.SQL(", ").join(map(sql.Identifier, self.key)),
            action=sql.SQL("UPDATE SET {}").format(changes) if others else sql.SQL("NOTHING"),
        )

    def _prepare(self, cursor: Any, query: str, wanted: dict[str, str]) -> None:
        sql = client_library("psycopg.sql", "postgres", "PostgreSQL")
        # Two drivers that create the same table at the same time would collide in the catalogue.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('resurge'))")
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {NOTES_TABLE} "
            "(job text, query text, target text, published text NOT NULL, PRIMARY KEY (job, query, target))"
        )
        columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in wanted.items()]
        if self.key:
            columns.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, self.key))))
        create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
        cursor.execute(create.format(_identifier(self.table), sql.SQL(", ").join(columns)))
        self._check_columns(cursor, wanted)
        if self.key:
            cursor.execute(self._merge_nothing(query))
        start = f"INSERT INTO {NOTES_TABLE} VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
        cursor.execute(start, (self._jobs[query], query, self.table, PublishedParts().encode().decode()))

    def _merge_nothing(self, query: str) -> Any:
        """A merge of no rows: fails if there is no unique index on the key."""
        sql = client_library("psycopg.sql", "postgres", "PostgreSQL")
        nothing = sql.SQL("(SELECT * FROM {} WHERE false) AS nothing").format(_identifier(self.table))
        return self._merge(query, nothing)

    def _check_columns(self, cursor: Any, wanted: dict[str, str]) -> None:
        sql = client_library("psycopg.sql", "postgres", "PostgreSQL")
        cursor.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(_identifier(self.table)))
        registry = cursor.connection.adapters.types
        found = {column.name: _type_name(registry, column) for column in cursor.description}
        for name, kind in wanted.items():
            if name not in found:
                raise SinkError(
                    f"table {self.table!r} has no column {name!r}; expected {name} {kind}: add it, or leave it out in a map"
                )
            if not _holds(found[name], kind):
                raise SinkError(
                    f"table {self.table!r}: column {name!r} is {found[name]}, but the query's rows are {kind}: "
                    "change the table, or cast the column in a map"
                )

    def _names(self, query: str) -> Any:
        sql = client_library("psycopg.sql", "postgres", "PostgreSQL")
        return sql.SQL(", ").join(map(sql.Identifier, self._columns[query]))


def _type_name(registry: Any, column: Any) -> str:
    name: str = getattr(registry.get(column.type_code), "name", "unknown")
    return f"numeric({column.precision},{column.scale})" if name == "numeric" and column.precision else name


def _holds(found: str, wanted: str) -> bool:
    """Whether a column can hold every value; a numeric column needs as many digits before and after the point.

    >>> _holds("numeric", "numeric(9,2)"), _holds("numeric(12,4)", "numeric(9,2)"), _holds("numeric(9,1)", "numeric(9,2)")
    (True, True, False)
    """
    if found.startswith("numeric") and wanted.startswith("numeric"):
        if found == "numeric":
            return True
        (precision, scale), (least_precision, least_scale) = (
            [int(digits) for digits in kind[8:-1].split(",")] for kind in (found, wanted)
        )
        return scale >= least_scale and precision - scale >= least_precision - least_scale
    return _ALIKE.get(found, found) == _ALIKE.get(wanted, wanted)


def _identifier(table: str) -> Any:
    """A table name, with its schema if it has one."""
    return client_library("psycopg.sql", "postgres", "PostgreSQL").Identifier(*table.split("."))
