"""An Iceberg table as a sink: executors write the data files, the driver commits them with the note of what was published."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from resurge.connectors.contracts import JobReference, StagedPart
from resurge.connectors.extras import check_extra, client_library
from resurge.connectors.lake_sink import LakeSink
from resurge.connectors.lake_types import ICEBERG
from resurge.connectors.locations import plain_location
from resurge.connectors.published import PublishedParts
from resurge.connectors.table_folder import TableFolder
from resurge.errors import ResurgeError, SinkError

RETRY_PAUSE_S = 0.2


class IcebergSink(LakeSink):
    """Appends to a table, which is made if it is missing; one that is there must have the query's columns and no partitions.

    `catalog` is the name of a pyiceberg catalog; `settings` are its properties, unless they are in pyiceberg's configuration.
    A staged file lies in the table's `data` folder and is no part of the table until a commit names it. The same commit sets a
    table property that says what was published; it is refused if another commit came between, such as one of a new driver.
    """

    def __init__(
        self, table: str, catalog: str = "default", settings: Mapping[str, str] | None = None, *, retry_timeout_s: float = 120.0
    ) -> None:
        check_extra("pyiceberg", "iceberg", f"IcebergSink({table!r})")
        self.table = table
        self.catalog = catalog
        self.settings = dict(settings or {})
        self.retry_timeout_s = retry_timeout_s
        super().__init__(ICEBERG)
        self._location = ""
        self._opened: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Executors only stage: the catalog and its settings stay on the driver."""
        return {**self.__dict__, "_opened": None, "settings": {}}

    def open(self, query: str, schema: pl.Schema, job: JobReference) -> None:
        wanted = pl.DataFrame(schema=ICEBERG.schema(schema)).to_arrow().schema
        self._apps[query] = f"resurge-{job.id}.{query}"
        try:
            catalog = client_library("pyiceberg.catalog", "iceberg", "Iceberg").load_catalog(self.catalog, **self.settings)
            if not catalog.table_exists(self.table):
                _create(catalog, self.table, wanted)
            self._opened = catalog.load_table(self.table)
        except Exception as error:
            raise SinkError(
                f"the Iceberg table {self.table!r} of catalog {self.catalog!r} could not be opened: {error}"
            ) from error
        _check_table(self.table, self._opened, wanted)
        self._location = self._opened.location().rstrip("/") + "/data"

    def _folder(self) -> TableFolder:
        return TableFolder(plain_location(self._location))

    def _publish_query(self, query: str, parts: Sequence[StagedPart]) -> None:
        """Commit what is not in the table yet; after a conflict or a lost answer, from what the table says then."""
        deadline = time.monotonic() + self.retry_timeout_s
        while True:
            try:
                self._opened.refresh()
                self._commit(query, parts)
                return
            except ResurgeError:
                raise
            except Exception as error:
                if not _is_passing(error) or time.monotonic() > deadline:
                    raise SinkError(
                        f"the Iceberg table {self.table!r} of catalog {self.catalog!r} could not be written: {error}; the epoch "
                        "is logged and will be published when the job runs again"
                    ) from error
            time.sleep(RETRY_PAUSE_S)

    def _commit(self, query: str, parts: Sequence[StagedPart]) -> None:
        note = self._apps[query]
        before = PublishedParts.decode(self._opened.properties.get(note))
        new = before.unseen(parts)
        if not new:
            return
        published = before.after(new).forget(self._forgotten.get(query, -1))
        # pyiceberg repeats a refused commit on top of the newest snapshot, with a note that is not true any more. So in our
        # copy of the table's properties, which is not written, it has no tries left: we look at the table again instead.
        metadata = self._opened.metadata
        once = {**metadata.properties, "commit.retry.num-retries": "0"}
        self._opened.metadata = metadata.model_copy(update={"properties": once})
        with self._opened.transaction() as transaction:
            transaction.set_properties({note: published.encode().decode()})
            transaction.add_files(
                [self._added(part) for part in new],
                snapshot_properties={"resurge": note, "resurge.epoch": str(max(part.epoch for part in new))},
                check_duplicate_files=False,
            )

    def _added(self, part: StagedPart) -> str:
        return f"{self._location}/{self._staged_file(part)[0]}"


def _create(catalog: Any, table: str, wanted: Any) -> None:
    """Make the table, unless another driver has made it meanwhile."""
    errors = client_library("pyiceberg.exceptions", "iceberg", "Iceberg")
    catalog.create_namespace_if_not_exists(table.rpartition(".")[0])
    try:
        catalog.create_table(table, wanted)
    except errors.TableAlreadyExistsError:
        return


def _is_passing(error: Exception) -> bool:
    """Whether another try may help: someone else committed, the answer was lost, or the catalog is away."""
    errors = client_library("pyiceberg.exceptions", "iceberg", "Iceberg")
    # The drivers of SQL catalogs call it so when the database is locked or away.
    is_away = type(error).__name__ == "OperationalError" or isinstance(error, ConnectionError)
    return is_away or isinstance(error, errors.CommitFailedException | errors.CommitStateUnknownException | errors.ServerError)


def _check_table(name: str, table: Any, wanted: Any) -> None:
    if not table.spec().is_unpartitioned():
        raise SinkError(f"the Iceberg table {name!r} is partitioned ({table.spec()}); expected one without partitions")
    found = {field.name: field for field in table.schema().fields}
    for column in wanted.names:
        if column not in found:
            raise SinkError(f"the Iceberg table {name!r} has no column {column!r}: add it, or leave it out in a map")
    library = client_library("pyiceberg.io.pyarrow", "iceberg", "Iceberg")
    for field in library.pyarrow_to_schema(wanted, name_mapping=table.schema().name_mapping).fields:
        if str(found[field.name].field_type) != str(field.field_type):
            raise SinkError(
                f"the Iceberg table {name!r} has {found[field.name].field_type} for column {field.name!r}, but the query's rows "
                f"are {field.field_type}: change the table, or cast the column in a map"
            )
    required = [column for column, field in found.items() if field.required]
    if required:
        raise SinkError(f"the Iceberg table {name!r} needs a value in column {required[0]!r}; expected only optional columns")
