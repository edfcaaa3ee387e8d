"""A Delta Lake table as a sink: executors write the data files, the driver commits them with the note of what was published."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import polars as pl

from resurge.connectors.contracts import JobReference, StagedPart
from resurge.connectors.extras import check_extra, client_library
from resurge.connectors.lake_sink import LakeSink
from resurge.connectors.lake_types import DELTA
from resurge.connectors.locations import plain_location
from resurge.connectors.published import PublishedParts
from resurge.connectors.table_folder import TableFolder
from resurge.errors import SinkError

MOST_CONFLICTS = 20


class Note(msgspec.Struct, frozen=True):
    """What a commit says of the parts published so far; `sequence` is also the version of the application transaction."""

    app: str
    sequence: int
    published: PublishedParts


class DeltaSink(LakeSink):
    """Appends to a table, which is made if it is missing; one that is there must have the query's columns.

    A staged file lies in the table's folder and is no part of the table until its commit names it. The commit has an
    application transaction, so that of two drivers only one can commit, and a note of what was published.
    """

    def __init__(self, path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> None:
        check_extra("deltalake", "delta", f"DeltaSink({os.fspath(path)!r})")
        self.path = plain_location(path)
        self.storage_options = dict(storage_options or {})
        super().__init__(DELTA)
        self._table: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        library = client_library("deltalake", "delta", "Delta Lake")
        self._apps[query] = f"resurge-{job.id}.{query}"
        wanted = library.Schema.from_arrow(pl.DataFrame(schema=DELTA.schema(schema)).to_arrow().schema)
        try:
            if not library.DeltaTable.is_deltatable(self.path, self.storage_options):
                library.DeltaTable.create(self.path, wanted, mode="ignore", storage_options=self.storage_options)
            self._table = library.DeltaTable(self.path, storage_options=self.storage_options)
        except Exception as error:
            raise SinkError(f"the Delta table {self.path} could not be opened: {error}") from error
        _check_columns(self.path, self._table.schema(), wanted)

    def _publish_query(self, query: str, parts: Sequence[StagedPart]) -> None:
        """Commit what is not in the table yet; after a conflict, from what the table says then."""
        library = client_library("deltalake.exceptions", "delta", "Delta Lake")
        for _ in range(MOST_CONFLICTS):
            try:
                self._table.update_incremental()
                self._commit(query, parts)
                return
            except library.CommitFailedError as error:
                conflict = error
            except library.DeltaError as error:
                raise SinkError(
                    f"the Delta table {self.path} could not be written: {error}; the epoch is logged and will be published when "
                    "the job runs again"
                ) from error
        raise SinkError(
            f"the Delta table {self.path} had {MOST_CONFLICTS} conflicting commits in a row ({conflict}); run the same command again"
        ) from conflict

    def _commit(self, query: str, parts: Sequence[StagedPart]) -> None:
        library = client_library("deltalake", "delta", "Delta Lake")
        before = self._note(query)
        new = before.published.unseen(parts)
        if not new:
            return
        published = before.published.after(new).forget(self._forgotten.get(query, -1))
        note = Note(before.app, before.sequence + 1, published)
        properties = library.CommitProperties(
            custom_metadata={"resurge": msgspec.json.encode(note).decode()},
            app_transactions=[library.Transaction(note.app, note.sequence)],
        )
        added = [self._added(part) for part in new]
        self._table.create_write_transaction(added, "append", self._table.schema(), commit_properties=properties)

    def _folder(self) -> TableFolder:
        return TableFolder(self.path)

    def _added(self, part: StagedPart) -> Any:
        action = client_library("deltalake.transaction", "delta", "Delta Lake").AddAction
        name, size = self._staged_file(part)
        statistics = msgspec.json.encode({"numRecords": part.rows}).decode()
        return action(name, size, {}, int(time.time() * 1000), True, statistics)

    def _note(self, query: str) -> Note:
        """The note of this query's newest commit."""
        app = self._apps[query]
        sequence = self._table.transaction_version(app)
        if sequence is None:
            return Note(app, 0, PublishedParts())
        for limit in (4, 64, 1024, None):
            for commit in self._table.history(limit):
                if "resurge" in commit:
                    note = msgspec.json.decode(commit["resurge"], type=Note)
                    if note.app == app and note.sequence == sequence:
                        return note
        raise SinkError(
            f"the log of the Delta table {self.path} no longer has this job's commit number {sequence}, which says what was "
            "published: its log was cleaned while the job was stopped. Compare the table with the job's output, and start a new job"
        )


def _check_columns(path: str, found: Any, wanted: Any) -> None:
    have = {field.name: str(field.type) for field in found.fields}
    for field in wanted.fields:
        if have.get(field.name) != str(field.type):
            raise SinkError(
                f"the Delta table {path} has {have.get(field.name, 'no such column')} for column {field.name!r}, but the query's "
                f"rows are {field.type}: change the table, or cast the column in a map"
            )
    missing = [field.name for field in found.fields if not field.nullable and field.name not in {f.name for f in wanted.fields}]
    if missing:
        raise SinkError(f"the Delta table {path} needs a value in column {missing[0]!r}, which the query does not have")
