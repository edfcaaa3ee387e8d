"""The log of a coordinator's inputs: blocks of entries, each with its length and checksum. Bytes only; files are for others.

A log begins with a state, so that it can be replayed without those before it. Then come the inputs with their times, and what
was decided after each, in short. An orderly end has the digest of the last state.
"""

import zlib
from collections.abc import Iterable, Iterator

import msgspec

from resurge.coordinator.canonical import digest
from resurge.coordinator.commands import Command
from resurge.coordinator.decisions import decided, mark
from resurge.coordinator.inputs import Input
from resurge.coordinator.snapshots import encoded
from resurge.coordinator.state import JobState
from resurge.errors import CorruptFileError

MAGIC = b"RESURGE-INPUTS-2"
_NUMBER_BYTES = 4


class Began(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A state that was not made by the inputs before: a driver began, went back to an older checkpoint, or a new log was begun."""

    at_s: float
    state: bytes


class Handled(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An input, and what the coordinator decided."""

    at_s: float
    event: Input
    decided: list[str]
    mark: int


class Ended(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The last state, by its digest."""

    at_s: float
    digest: int


Entry = Began | Handled | Ended
_decoder = msgspec.msgpack.Decoder(list[Entry])


def began(at_s: float, state: JobState) -> Began:
    """The entry for a state."""
    return Began(at_s, encoded(state))


def handled(at_s: float, event: Input, commands: Iterable[Command], state: JobState) -> Handled:
    """The entry for an input, its commands and the state afterwards."""
    return Handled(at_s, event, decided(commands), mark(state))


def ended(at_s: float, state: JobState) -> Ended:
    """The entry for the end."""
    return Ended(at_s, digest(state))


def block(entries: list[Entry]) -> bytes:
    """Entries as they are written together; compressed, because inputs are much alike."""
    content = zlib.compress(msgspec.msgpack.encode(entries), 1)
    return len(content).to_bytes(_NUMBER_BYTES, "big") + zlib.crc32(content).to_bytes(_NUMBER_BYTES, "big") + content


def entries(content: bytes, name: str = "the log") -> Iterator[Entry]:
    """The entries of a log; a last block that was torn when its driver died is left out.

    >>> found = list(entries(MAGIC + block([Ended(1.0, 2), Ended(2.0, 3)]) + b"torn"))
    >>> found
    [Ended(at_s=1.0, digest=2), Ended(at_s=2.0, digest=3)]
    """
    if not content.startswith(MAGIC):
        raise CorruptFileError(f"{name} is no log of inputs of this version; expected it to begin with {MAGIC.decode()}")
    at = len(MAGIC)
    while at < len(content):
        start = at + 2 * _NUMBER_BYTES
        end = start + int.from_bytes(content[at : at + _NUMBER_BYTES], "big")
        packed = content[start:end]
        is_whole = zlib.crc32(packed).to_bytes(_NUMBER_BYTES, "big") == content[at + _NUMBER_BYTES : start]
        if end > len(content) or not is_whole:
            if end < len(content):
                raise CorruptFileError(
                    f"{name} has a block at byte {at} that does not fit its checksum; expected it to be intact"
                )
            return
        yield from _decoder.decode(zlib.decompress(packed))
        at = end
