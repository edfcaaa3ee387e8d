"""Read a telemetry log as it grows: what is there, then what is added, also when the file is replaced by a newer one."""

import os
from pathlib import Path

import msgspec

from resurge.telemetry.events import Event
from resurge.telemetry.log import log_files

CHUNK_BYTES = 8 * 1024 * 1024
_decoder = msgspec.json.Decoder(Event)


class LogFollower:
    """Events of a log from its beginning on; a file that is not there yet has none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._older: list[int] | None = None
        self._offset = 0
        self._rest = b""

    def poll(self) -> list[Event]:
        """The events that were added since the last call, at most some megabytes of them."""
        if not self._is_open():
            return []
        assert self._file is not None
        added = os.pread(self._file, CHUNK_BYTES, self._offset)
        self._offset += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        return [event for line in lines if (event := _decoded(line)) is not None]

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        while self._older:
            os.close(self._older.pop())

    def _is_open(self) -> bool:
        """Whether there is a file; one that was replaced is read to its end before the new one."""
        if self._file is not None:
            known = os.fstat(self._file)
            if known.st_size > self._offset or (not self._older and _is_same(self.path, known)):
                return True
            os.close(self._file)
            self._file = None
        if self._older is None:
            # Opened at once: a rotation meanwhile gives them other names.
            self._older = [os.open(file, os.O_RDONLY) for file in log_files(self.path) if file != self.path]
        if self._older:
            self._file, self._offset, self._rest = self._older.pop(0), 0, b""
            return True
        try:
            self._file = os.open(self.path, os.O_RDONLY)
        except OSError:
            return False
        self._offset, self._rest = 0, b""
        return True


def _is_same(path: Path, known: os.stat_result) -> bool:
    try:
        found = path.stat()
    except OSError:
        return True
    return (found.st_dev, found.st_ino) == (known.st_dev, known.st_ino) and found.st_size >= known.st_size


def _decoded(line: bytes) -> Event | None:
    """An event, or None for a line that was cut off or that a newer version wrote."""
    try:
        event: Event = _decoder.decode(line)
    except msgspec.DecodeError:
        return None
    return event
