"""Packets: everything that one task sends to one slot, as one blob of Arrow tables."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.operators.program import Exchange
from resurge.runtime.worker.grouped import Grouped, Integers
from resurge.runtime.worker.messages import SOURCES, FrameEntry, PacketHeader
from resurge.storage.frames import from_bytes, to_bytes

SOURCE = "__source"
"""The column with the key group upstream that made a row."""

_encoder = msgspec.msgpack.Encoder()
_header = msgspec.msgpack.Decoder(PacketHeader)


class Origin(NamedTuple):
    """Which rows a table of a packet has: those of an exchange, in an epoch, from a source in the fixed order."""

    exchange: int
    epoch: int
    order: int


class PacketWriter:
    """Collects the tables for one slot."""

    def __init__(self) -> None:
        self.entries: list[FrameEntry] = []
        self.bodies: list[bytes | memoryview] = []
        self.size = 0

    def add(
        self, exchange: int, epoch: int, order: int, key_groups: list[int], ends: list[int], body: bytes | memoryview
    ) -> None:
        """Add one table."""
        self.entries.append(FrameEntry(exchange, epoch, order, key_groups, ends, self.size, len(body)))
        self.bodies.append(body)
        self.size += len(body)

    def finish(self, slot: int, maxima_us: dict[int, dict[str, int]], reports: list[bytes]) -> bytes:
        """The packet's bytes."""
        header = _encoder.encode(PacketHeader(slot, self.entries, maxima_us, reports))
        return b"".join([len(header).to_bytes(8, "little"), header, *self.bodies])


class ReceivedFrame:
    """One table of a packet, decoded when first asked for."""

    def __init__(self, entry: FrameEntry, body: memoryview) -> None:
        self.entry = entry
        self.body = body

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The rows, ordered by the key group that they are for."""
        return from_bytes(self.body)

    @property
    def groups(self) -> Integers:
        """The key group that each row is for."""
        return np.repeat(np.asarray(self.entry.key_groups), np.diff(self.entry.ends, prepend=0))

    @property
    def sources(self) -> Integers:
        """The split or key group that each row comes from."""
        if self.entry.order == SOURCES:
            return self.rows.get_column(SOURCE).to_numpy().astype(np.int64)
        return np.full(self.entry.ends[-1], self.entry.order)


class Inbox:
    """All packets that one slot received, in the fixed order: exchange, then key group, then source, then row."""

    def __init__(self, packets: Iterable[bytes]) -> None:
        self.maxima_us: dict[int, dict[str, int]] = {}
        self.reports: list[bytes] = []
        self.frames: dict[tuple[int, int], list[ReceivedFrame]] = {}
        self._rows: dict[tuple[int, int], Grouped] = {}
        for packet in packets:
            self._take(packet)
        for frames in self.frames.values():
            frames.sort(key=lambda frame: frame.entry.order)

    def tables(self) -> list[tuple[int, int, int, list[int]]]:
        """What there is: exchange, source, epoch, and the key groups that rows of it are for."""
        found = []
        for (exchange, epoch), frames in self.frames.items():
            pairs = np.concatenate([np.stack([frame.sources, frame.groups]) for frame in frames], axis=1)
            distinct = np.unique(pairs, axis=1)
            found += [
                (exchange, int(source), epoch, distinct[1, distinct[0] == source].tolist()) for source in np.unique(distinct[0])
            ]
        return found

    def rows(self, exchange: int, epoch: int, key_groups: int) -> Grouped | None:
        """All rows of an exchange in an epoch, in their fixed order; None if there are none."""
        frames = self.frames.get((exchange, epoch))
        if not frames:
            return None
        if (exchange, epoch) not in self._rows:
            self._rows[exchange, epoch] = _ordered(frames, key_groups)
        return self._rows[exchange, epoch]

    def forwarded(self, exchanges: Sequence[Exchange], level: int) -> list[ReceivedFrame]:
        """Tables for a later level, which wait here."""
        later = {exchange.number for exchange in exchanges if exchange.to_level > level}
        return [frame for (exchange, _), frames in self.frames.items() if exchange in later for frame in frames]

    def _take(self, packet: bytes) -> None:
        view = memoryview(packet)
        length = int.from_bytes(view[:8], "little")
        header = _header.decode(view[8 : 8 + length])
        body = view[8 + length :]
        self.reports += header.reports
        merge_maxima(self.maxima_us, header.maxima_us)
        for entry in header.frames:
            frame = ReceivedFrame(entry, body[entry.offset : entry.offset + entry.length])
            self.frames.setdefault((entry.exchange, entry.epoch), []).append(frame)


def _ordered(frames: Sequence[ReceivedFrame], key_groups: int) -> Grouped:
    rows = pl.concat([frame.rows for frame in frames], rechunk=True)
    groups = np.concatenate([frame.groups for frame in frames])
    if SOURCE not in rows.columns:
        return Grouped.of(rows, groups, key_groups)
    order = np.argsort(groups * key_groups + rows.get_column(SOURCE).to_numpy(), kind="stable")
    return Grouped.of(rows.drop(SOURCE)[order], groups[order], key_groups)


def merge_maxima(into: dict[int, dict[str, int]], maxima_us: Mapping[int, Mapping[str, int]]) -> None:
    """Keep the highest event time per epoch and source."""
    for epoch, sources in maxima_us.items():
        known = into.setdefault(epoch, {})
        for source, value in sources.items():
            known[source] = max(value, known.get(source, value))


class Targets:
    """Which key groups of an exchange each slot wants."""

    def __init__(self, routes: Iterable[Sequence[int]], slots: int, key_groups: int) -> None:
        self.key_groups = key_groups
        self.wanted = np.zeros((slots, key_groups), dtype=np.bool_)
        for route in {tuple(route) for route in routes}:
            slot = np.asarray(route)
            self.wanted[slot[slot >= 0], np.flatnonzero(slot >= 0)] = True

    @cached_property
    def in_order(self) -> Integers | None:
        """All key groups, those of each slot together; None if one goes to several slots."""
        if np.any(self.wanted.sum(axis=0) > 1):
            return None
        slot = np.where(self.wanted.any(axis=0), self.wanted.argmax(axis=0), self.wanted.shape[0])
        return np.argsort(slot, kind="stable")

    @cached_property
    def places(self) -> npt.NDArray[np.uint16]:
        """Each key group's place in that order."""
        places = np.empty(self.key_groups, dtype=np.uint16)
        places[self.in_order] = np.arange(self.key_groups)
        return places


def send(
    exchange: Exchange, rows: pl.DataFrame, epoch: int, order: int, targets: Targets, writers: Sequence[PacketWriter]
) -> None:
    """Cut rows by key group and add each slot's share to its packet."""
    if not rows.height:
        return
    groups = key_groups_of(hash_rows(rows, exchange.key), targets.key_groups)
    if targets.in_order is None:
        for writer, wanted in zip(writers, targets.wanted, strict=True):
            keep(Origin(exchange.number, epoch, order), rows, groups, wanted, writer)
        return
    places = targets.places[groups]
    arranged = rows[np.argsort(places, kind="stable")] if targets.key_groups > 1 else rows
    counts = np.bincount(places, minlength=targets.key_groups)
    ends, first = np.cumsum(counts), 0
    for writer, wanted in zip(writers, targets.wanted, strict=True):
        last = first + int(np.count_nonzero(wanted))
        start = int(ends[first - 1]) if first else 0
        height = int(ends[last - 1]) - start if last else 0
        if height > 0 and last > first:
            filled = np.flatnonzero(counts[first:last]) + first
            body = to_bytes(arranged.slice(start, height))
            writer.add(exchange.number, epoch, order, targets.in_order[filled].tolist(), (ends[filled] - start).tolist(), body)
        first = last


def keep(origin: Origin, rows: pl.DataFrame, groups: Integers, wanted: npt.NDArray[np.bool_], writer: PacketWriter) -> None:
    """Add the rows of the wanted key groups, ordered by key group."""
    chosen = np.flatnonzero(wanted[groups])
    if not chosen.size:
        return
    chosen = chosen[np.argsort(groups[chosen], kind="stable")]
    filled, counts = np.unique(groups[chosen], return_counts=True)
    writer.add(*origin, filled.tolist(), np.cumsum(counts).tolist(), to_bytes(rows[chosen]))


def resend(frame: ReceivedFrame, taken: Mapping[int, Iterable[int]], targets: Targets, writers: Sequence[PacketWriter]) -> None:
    """Send again what was buffered: from each source key group the rows for some key groups."""
    entry, groups = frame.entry, frame.groups
    pairs = [source * targets.key_groups + group for source, mine in taken.items() for group in mine]
    chosen = np.flatnonzero(np.isin(frame.sources * targets.key_groups + groups, pairs))
    rows, groups = frame.rows[chosen], groups[chosen]
    for writer, wanted in zip(writers, targets.wanted, strict=True):
        keep(Origin(entry.exchange, entry.epoch, entry.order), rows, groups, wanted, writer)
