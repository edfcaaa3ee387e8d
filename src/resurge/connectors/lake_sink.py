"""What the sinks of lake tables share: executors write data files beside those of the table, a commit names them later."""

import io
import re
import secrets
from abc import abstractmethod
from collections.abc import Sequence

import polars as pl

from resurge.connectors.contracts import Sink, StagedPart
from resurge.connectors.lake_types import LakeTypes
from resurge.connectors.table_folder import TableFolder
from resurge.errors import SinkError

_NAME = re.compile(r"resurge-[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.(\d+)\.[0-9a-f]+\.parquet")


class LakeSink(Sink):
    """Stages each part as one Parquet file, which is no part of the table until the table's own commit names it."""

    def __init__(self, types: LakeTypes) -> None:
        self._types = types
        self._apps: dict[str, str] = {}
        self._forgotten: dict[str, int] = {}

    @abstractmethod
    def _folder(self) -> TableFolder:
        """Where the data files lie."""

    @abstractmethod
    def _publish_query(self, query: str, parts: Sequence[StagedPart]) -> None:
        """Commit the parts of one query that are not in the table yet."""

    def stage(self, query: str, epoch: int, part: str, attempt: str, frame: pl.DataFrame) -> StagedPart:
        if not frame.height:
            return StagedPart(query, int(epoch), part, 0)
        # A name of its own: an attempt that was abandoned must not be taken for this one.
        name = f"{self._apps[query]}.{int(epoch)}.{secrets.token_hex(8)}.parquet"
        buffer = io.BytesIO()
        self._types.frame(frame).write_parquet(buffer)
        self._folder().write(name, buffer.getvalue())
        return StagedPart(query, int(epoch), part, frame.height, location=name)

    def publish(self, parts: Sequence[StagedPart]) -> None:
        for query in dict.fromkeys(part.query for part in parts):
            self._publish_query(query, [part for part in parts if part.query == query])

    def discard(self, parts: Sequence[StagedPart]) -> None:
        for part in parts:
            if part.location is not None:
                self._folder().remove(part.location)

    def clean(self, query: str, committed_epoch: int) -> None:
        """Remove files of epochs that were never committed."""
        folder = self._folder()
        for name in folder.names(f"{self._apps[query]}."):
            match = _NAME.fullmatch(name)
            if match is not None and int(match[1]) > committed_epoch:
                folder.remove(name)

    def forget(self, query: str, epoch: int) -> None:
        self._forgotten[query] = epoch

    def _staged_file(self, part: StagedPart) -> tuple[str, int]:
        """The name and the size of a part's file, which must be there."""
        if part.location is None or _NAME.fullmatch(part.location) is None:
            raise SinkError(f"part {part.identity} is at {part.location!r}; expected a file name as `stage` makes it")
        folder = self._folder()
        size = folder.size_bytes(part.location)
        if size is None:
            raise SinkError(
                f"part {part.identity} cannot be published: {folder.path}/{part.location} is gone; expected the {part.rows} rows "
                "staged there: restore that file"
            )
        return part.location, size
