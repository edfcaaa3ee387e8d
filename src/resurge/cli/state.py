"""resurge state: an operator's checkpointed state as a table."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from resurge.errors import StorageError

if TYPE_CHECKING:
    import polars as pl

    from resurge.storage.checkpoint_store import CheckpointManifest
    from resurge.storage.job_store import TableKey
    from resurge.storage.stored_job import StoredJob

TIME_COLUMNS = {"window_start", "window_end", "__at", "__due", "__first", "__last", "__expire", "__time"}
HELP = (
    "Read an operator's state from the newest global checkpoint, as a table.\n\n"
    "Needs neither Spark nor the job's file, and changes nothing. Files are checked against their checksums as they "
    "are read. --key compares with the first key column, --key COLUMN=VALUE with any; several must all fit.\n\n"
    """\b
Examples:
  resurge state out/trending busy                      the first rows
  resurge state out/trending busy --key tag7           one key
  resurge state out/trending pairs --key user=3 --table left --json
"""
)


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The checkpoint URL that the job was run with.")],
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="A stateful operator of the job.")],
    key: Annotated[list[str] | None, typer.Option(metavar="K", help="Only rows of this key; may be given several times.")] = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="One of the operator's state tables; all if not given.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="At most N rows of each table.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read, choose, show."""
    from resurge.storage.stored_job import open_job, while_files_move

    epoch, tables = while_files_move(lambda: state_of(open_job(url), operator, table), url)
    chosen = {name: _of_keys(frame, keys, key or []) for name, (frame, keys) in tables.items()}
    if as_json:
        _print_json(operator, epoch, chosen, limit)
    else:
        _print_tables(operator, epoch, chosen, limit)


def state_of(
    job: "StoredJob", operator: str, table: str | None = None
) -> tuple[int, dict[str, tuple["pl.DataFrame", tuple[str, ...]]]]:
    """The epoch of the newest checkpoint, and the rows and key columns of an operator's tables at that epoch."""
    known = {name: tables for name, tables in job.identity.table_keys.items() if tables}
    if operator not in known:
        raise StorageError(
            f"{operator!r} has no state at {job.store.url}; expected a stateful operator: {', '.join(sorted(known)) or 'there are none'}"
        )
    if table is not None and table not in known[operator]:
        raise StorageError(f"{operator!r} has no table {table!r}; expected one of: {', '.join(sorted(known[operator]))}")
    manifest, problems = job.newest_checkpoint()
    if manifest is None:
        reason = problems[0] if problems else "the job has not made one yet"
        raise StorageError(f"there is no checkpoint to read at {job.store.url}: {reason}")
    wanted = {name: spec for name, spec in known[operator].items() if table in (None, name)}
    return manifest.epoch, {name: (_rows(job, manifest, operator, name, spec), tuple(spec.key)) for name, spec in wanted.items()}


def _rows(job: "StoredJob", manifest: "CheckpointManifest", operator: str, table: str, key: "TableKey") -> "pl.DataFrame":
    """A table's rows of all partitions, by key."""
    from dataclasses import replace

    import polars as pl

    from resurge.operators.sorted_runs import DELETED, TableSpec
    from resurge.storage.runs import Loader, RunRef

    def read(reference: RunRef) -> bytes:
        return job.store.read_range(reference.segment, reference.offset, reference.length)

    spec = TableSpec(pl.Schema(), tuple(key.key), key.bucket)
    frames = []
    loader = Loader({table: spec}, job.identity.key_groups, read)
    for cohort in manifest.cohorts:
        if cohort.operator != operator:
            continue
        loaded = loader.durable([cohort], cohort.key_groups)[table]
        if loaded.runs:
            schema = pl.Schema({name: kind for name, kind in loaded.runs[0].rows.schema.items() if name != DELETED})
            frames.append(replace(loaded, spec=replace(spec, schema=schema)).rows())
    if not frames:
        return pl.DataFrame(schema=dict.fromkeys(key.key, pl.String()))
    return _with_times(pl.concat(frames).sort(key.key, nulls_last=True))


def _with_times(frame: "pl.DataFrame") -> "pl.DataFrame":
    """Operators keep times as microseconds: show them as what they are, in structs and lists too."""
    kinds = {name: _shown_type(name, kind) for name, kind in frame.schema.items()}
    return frame.cast({name: kind for name, kind in kinds.items() if kind != frame.schema[name]})


def _shown_type(name: str, kind: Any) -> Any:
    import polars as pl

    if name in TIME_COLUMNS and kind == pl.Int64:
        return pl.Datetime("us")
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _shown_type(field.name, field.dtype) for field in kind.fields})
    if isinstance(kind, pl.List):
        return pl.List(_shown_type(name, kind.inner))
    return kind


def _of_keys(frame: "pl.DataFrame", key: tuple[str, ...], wanted: list[str]) -> "pl.DataFrame":
    import polars as pl

    for text in wanted:
        column, equals, value = text.partition("=")
        if not equals or column not in frame.columns:
            column, value = key[0], text
        frame = frame.filter(pl.col(column).cast(pl.String) == value)
    return frame


def _print_json(operator: str, epoch: int, tables: dict[str, "pl.DataFrame"], limit: int) -> None:
    import msgspec

    found = {name: {"rows": frame.height, "data": frame.head(limit).to_dicts()} for name, frame in tables.items()}
    print(msgspec.json.encode({"operator": operator, "epoch": epoch, "tables": found}, enc_hook=str).decode())


def _print_tables(operator: str, epoch: int, tables: dict[str, "pl.DataFrame"], limit: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for name, frame in tables.items():
        shown = frame.head(limit)
        more = f", the first {limit:,} shown" if frame.height > limit else ""
        console.print(f"{operator}, table {name}, epoch {epoch:,}: {frame.height:,} rows{more}", highlight=False, markup=False)
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
        for column, kind in shown.schema.items():
            table.add_column(Text(column), justify="right" if kind.is_numeric() else "left")
        for row in shown.iter_rows():
            table.add_row(*(Text(_cell(value)) for value in row))
        if shown.height:
            console.print(table)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
