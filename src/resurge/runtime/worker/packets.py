"""Packets: everything that one task sends to one slot, as one blob of Arrow tables."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import polars as pl

from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.operators.program import Exchange
from resurge.runtime.storage.frames import from_bytes, to_bytes
from resurge.runtime.worker.messages import FrameEntry, PacketHeader

_encoder = msgspec.msgpack.Encoder()
_header = msgspec.msgpack.Decoder(PacketHeader)


class PacketWriter:
    """Collects the tables for one slot."""

    def __init__(self) -> None:
        self.entries: list[FrameEntry] = []
        self.bodies: list[bytes] = []
        self.size = 0

    def add(self, exchange: int, epoch: int, order: int, key_groups: list[int], ends: list[int], body: bytes) -> None:
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
        self._frame: pl.DataFrame | None = None

    def of_key_group(self, key_group: int) -> pl.DataFrame | None:
        """The rows of one key group, or None if there are none."""
        if key_group not in self.entry.key_groups:
            return None
        place = self.entry.key_groups.index(key_group)
        start = self.entry.ends[place - 1] if place else 0
        if self._frame is None:
            self._frame = from_bytes(self.body)
        return self._frame.slice(start, self.entry.ends[place] - start)


class Inbox:
    """All packets that one slot received, in the fixed order: exchange, then source partition, then row."""

    def __init__(self, packets: Iterable[bytes]) -> None:
        self.maxima_us: dict[int, dict[str, int]] = {}
        self.reports: list[bytes] = []
        self.frames: dict[tuple[int, int], list[ReceivedFrame]] = {}
        for packet in packets:
            self._take(packet)
        for frames in self.frames.values():
            frames.sort(key=lambda frame: frame.entry.order)

    def tables(self) -> list[tuple[int, int, int, list[int]]]:
        """What there is: exchange, order, epoch, key groups of each table."""
        return [(f.entry.exchange, f.entry.order, f.entry.epoch, f.entry.key_groups) for fs in self.frames.values() for f in fs]

    def rows(self, exchange: int, epoch: int, key_group: int) -> list[pl.DataFrame]:
        """The tables of one key group."""
        found = (frame.of_key_group(key_group) for frame in self.frames.get((exchange, epoch), ()))
        return [frame for frame in found if frame is not None]

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


def merge_maxima(into: dict[int, dict[str, int]], maxima_us: Mapping[int, Mapping[str, int]]) -> None:
    """Keep the highest event time per epoch and source."""
    for epoch, sources in maxima_us.items():
        known = into.setdefault(epoch, {})
        for source, value in sources.items():
            known[source] = max(value, known.get(source, value))


def send(
    exchange: Exchange,
    rows: pl.DataFrame,
    epoch: int,
    order: int,
    key_groups: int,
    targets: Sequence[frozenset[int]],
    writers: Sequence[PacketWriter],
) -> None:
    """Cut rows by key group and add each slot's share to its packet; `targets` says which key groups a slot wants."""
    if not rows.height:
        return
    groups = key_groups_of(hash_rows(rows, exchange.key), key_groups)
    arranged = rows[np.argsort(groups, kind="stable")] if key_groups > 1 else rows
    ends = np.cumsum(np.bincount(groups, minlength=key_groups)).tolist()
    _distribute(exchange.number, arranged, ends, epoch, order, targets, writers)


def _distribute(
    exchange: int,
    arranged: pl.DataFrame,
    ends: list[int],
    epoch: int,
    order: int,
    targets: Sequence[frozenset[int]],
    writers: Sequence[PacketWriter],
) -> None:
    for writer, wanted in zip(writers, targets, strict=True):
        pieces, groups, lengths = [], [], []
        for group in sorted(wanted):
            start = ends[group - 1] if group else 0
            if ends[group] > start:
                pieces.append((start, ends[group]))
                groups.append(group)
                lengths.append(ends[group] - start)
        if pieces:
            body = to_bytes(_sliced(arranged, pieces))
            writer.add(exchange, epoch, order, groups, np.cumsum(lengths).tolist(), body)


def _sliced(frame: pl.DataFrame, pieces: list[tuple[int, int]]) -> pl.DataFrame:
    if all(left[1] == right[0] for left, right in pairwise(pieces)):
        return frame.slice(pieces[0][0], pieces[-1][1] - pieces[0][0])
    return pl.concat([frame.slice(start, end - start) for start, end in pieces])


def resend(
    frame: ReceivedFrame, wanted: frozenset[int], targets: Sequence[frozenset[int]], writers: Sequence[PacketWriter]
) -> None:
    """Send some key groups of a table that was buffered."""
    entry = frame.entry
    for writer, takes in zip(writers, targets, strict=True):
        groups = [group for group in entry.key_groups if group in wanted and group in takes]
        pieces = [piece for piece in (frame.of_key_group(group) for group in groups) if piece is not None]
        if pieces:
            ends = np.cumsum([piece.height for piece in pieces]).tolist()
            writer.add(entry.exchange, entry.epoch, entry.order, groups, ends, to_bytes(pl.concat(pieces)))
