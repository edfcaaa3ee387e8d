"""resurge skip: go on without a file that a source cannot read."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from resurge.storage.stored_job import StoredJob

HELP = (
    "Go on without a file of a file source: what was not read of it is never read.\n\n"
    "For a file that stops the job and cannot be corrected. The choice is recorded at the checkpoint URL, shown by `resurge "
    "status`, and holds from the next start of the job on. It cannot be taken back: give the rows a new file name if they are "
    "to be read after all.\n\n"
    """\b
Examples:
  resurge skip out/trending posts /data/posts/broken.csv
"""
)


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The checkpoint URL that the job was run with.")],
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The source's name in the topology.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file, as the error message names it.")],
) -> None:
    """Check, record, say what it means."""
    from resurge.storage.skips import Skip, record_skip
    from resurge.storage.stored_job import open_job

    job = open_job(url)
    path, told = checked_file(job, source, file)
    is_new = record_skip(job.store, Skip(source, path, time.time()))
    print(f"{path} {'is skipped from the next start of the job on' if is_new else 'was skipped before'}: {told}")


def checked_file(job: "StoredJob", source: str, file: str) -> tuple[str, str]:
    """The file as the source knows it, and what skipping it means; refused if the source does not know it."""
    from resurge.cli.status import offsets_of
    from resurge.connectors.file_log import FileLog
    from resurge.connectors.locations import plain_location, stat_file
    from resurge.errors import SourceError
    from resurge.runtime.driver.sources import StoredSourceLog

    if "FileSource(" not in job.identity.operators.get(source, ""):
        known = [name for name, signature in job.identity.operators.items() if "FileSource(" in signature]
        raise SourceError(
            f"{source!r} is not a file source of the job at {job.store.url}; expected one of: {', '.join(known) or 'it has none'}"
        )
    path = plain_location(file)
    at = offsets_of(job, job.newest_checkpoint()[0]).get(source, {"batch": 0})
    log = FileLog(StoredSourceLog(job.store, source), source)
    log.go_to(at)
    if path in log.sizes_bytes:
        return path, "all of it was read and committed before; what is written to it later is not read"
    if path in log.unfinished:
        return path, f"its first {log.unfinished[path].row_end} rows were read and committed before; the rest is not read"
    if stat_file(path) is None:
        raise SourceError(
            f"{path} is not there, and {source!r} has read nothing of it: expected the name of a file that is there"
        )
    return path, "no row of it is read"
