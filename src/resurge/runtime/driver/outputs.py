"""The driver's side of the sinks: open them, show committed parts, discard abandoned ones."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from resurge.connectors.contracts import JobReference, Sink, StagedPart
from resurge.errors import CorruptFileError, ResurgeError, SinkError
from resurge.model.topology import Topology
from resurge.model.user_code import user_traceback
from resurge.runtime.worker.messages import SlotReport
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.journal import CatchUpCommitted, CheckpointPublished, EpochCommitted, Journal, Record


class Outputs:
    """All sinks of a topology, by query."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.sinks: dict[str, Sink] = {query.name: query.sink for query in topology.queries.values()}

    def open(self, job: JobReference, committed_epoch: int) -> None:
        """Check every destination, and remove what abandoned attempts left there."""
        for query, sink in self.sinks.items():
            _told(query, "open", sink.open, query, self.topology.shapes[self.topology.queries[query].operator].schema, job)
            _told(query, "clean up", sink.clean, query, committed_epoch)

    def show(self, parts: Iterable[StagedPart]) -> None:
        """Let readers see parts whose commit is logged, in order of epochs."""
        by_query: dict[str, list[StagedPart]] = {}
        for part in parts:
            by_query.setdefault(part.query, []).append(part)
        for query, mine in by_query.items():
            _told(query, "publish", self.sinks[query].publish, sorted(mine, key=lambda part: (part.epoch, part.part)))

    def kept(self, parts: Sequence[StagedPart], journal: Journal) -> str | None:
        """Make the rows of parts that carry them durable, before their commit is logged; the file, if there are any."""
        carrying = [part for part in parts if part.payload is not None]
        if not carrying:
            return None
        name = paths.part_rows(max(part.epoch for part in parts), journal.generation, journal.next_number)
        content = msgspec.msgpack.encode(carrying)
        journal.store.create(name, zlib.crc32(content).to_bytes(4, "big") + content)
        return name

    def show_again(self, store: DurableStore, records: Iterable[Record]) -> None:
        """Show the parts of the newest commit, which may have been logged and not shown; what is older was shown before it."""
        newest: EpochCommitted | CatchUpCommitted | None = None
        for record in records:
            if isinstance(record, EpochCommitted | CatchUpCommitted):
                newest = record
            elif isinstance(record, CheckpointPublished):
                newest = None
        if newest is not None:
            carrying = _rows_of(store, newest.rows) if newest.rows is not None else {}
            self.show([carrying.get(part.identity, part) for part in newest.parts if part.query in self.sinks])

    def forget(self, epoch: int) -> None:
        """Tell the sinks that no part up to this epoch is shown again."""
        for query, sink in self.sinks.items():
            _told(query, "forget old parts", sink.forget, query, epoch)

    def discard(self, reports: Iterable[SlotReport]) -> None:
        """Remove what a failed attempt staged."""
        for report in reports:
            for part in report.parts:
                _told(part.query, "discard", self.sinks[part.query].discard, [part])


def _told(query: str, action: str, function: Callable[..., None], *arguments: Any) -> None:
    """Call a sink, which may be the user's own; its failure names the query and keeps the lines that led to it."""
    try:
        function(*arguments)
    except ResurgeError:
        raise
    except Exception as error:
        raise SinkError(
            f"the sink of query {query!r} could not {action}: {type(error).__name__}: {error}; what is committed is published "
            f"by the next run: fix the cause and run the same command again{user_traceback(error)}"
        ) from error


def without_rows(parts: Sequence[StagedPart]) -> list[StagedPart]:
    """Parts as the journal keeps them: where they are, not what is in them."""
    return [msgspec.structs.replace(part, payload=None) for part in parts]


def _rows_of(store: DurableStore, name: str) -> dict[str, StagedPart]:
    content = store.read(name)
    if zlib.crc32(content[4:]).to_bytes(4, "big") != content[:4]:
        raise CorruptFileError(
            f"{store.path(name)} does not fit its checksum: the file is torn or was altered; restore it from a copy"
        )
    return {part.identity: part for part in msgspec.msgpack.decode(content[4:], type=list[StagedPart])}
