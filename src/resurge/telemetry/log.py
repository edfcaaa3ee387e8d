"""The telemetry log: one JSON object a line, written as things happen.

A log that is full is renamed and a new one begun, so that a job that runs for months has a log of bounded size. Of the files
that are dropped the events that all others are understood by are kept: how the job began, and what it runs.
"""

import os
import threading
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from types import TracebackType

import msgspec

from resurge.redaction import redacted
from resurge.telemetry.events import Event, JobStarted, TopologyDescribed

LOG_BYTES = 64 * 1024 * 1024
OLDER_KEPT = 3
_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()

OWNER_ONLY = 0o600
Listener = Callable[[Event], None]


class TelemetryLog:
    """Appends events to a file and tells listeners, one event at a time; either may be absent."""

    def __init__(self, path: Path | None = None, limit_bytes: int = LOG_BYTES) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self._size_bytes = 0
        self.listeners: list[Listener] = []
        self._file: FileIO | None = None
        self._writing = threading.RLock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open(path)

    def write(self, event: Event) -> None:
        """Record an event, without credentials that its texts may have."""
        text = _encoder.encode(event).decode()
        shown = redacted(text)
        event = event if shown == text else _decoder.decode(shown)
        with self._writing:
            if self._file is not None and self.path is not None:
                line = shown.encode() + b"\n"
                if self._size_bytes and self._size_bytes + len(line) > self.limit_bytes:
                    self._file.close()
                    _rotate(self.path)
                    self._open(self.path)
                self._file.write(line)
                self._size_bytes += len(line)
            for listener in self.listeners:
                listener(event)

    def _open(self, path: Path) -> None:
        self._file = open_for_owner(path)
        self._size_bytes = path.stat().st_size

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "TelemetryLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def log_files(path: Path) -> list[Path]:
    """The files that a log consists of, oldest first; the log itself is the last."""
    older = [_head(path), *(_older(path, number) for number in range(OLDER_KEPT, 0, -1))]
    return [file for file in [*older, path] if file.exists()]


def open_for_owner(path: Path) -> FileIO:
    """A log opened for appending, unbuffered; a new one can be read by its owner only."""
    return open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags, OWNER_ONLY))


def read_events(path: Path) -> Iterator[Event]:
    """The events of a log; a last line that was cut off by a crash is left out."""
    for file in log_files(path) or [path]:
        yield from _events(file)


def _events(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        for line in file:
            try:
                yield _decoder.decode(line)
            except msgspec.DecodeError:
                continue


def _rotate(path: Path) -> None:
    """Make room for a new file: every older one moves by a number, and the oldest is dropped but for what is kept of it."""
    oldest = _older(path, OLDER_KEPT)
    if oldest.exists():
        _keep_head(path, oldest)
        oldest.unlink()
    for number in range(OLDER_KEPT - 1, 0, -1):
        if _older(path, number).exists():
            _older(path, number).rename(_older(path, number + 1))
    path.rename(_older(path, 1))


def _keep_head(path: Path, dropped: Path) -> None:
    head, newest = _head(path), {}
    for file in (head, dropped):
        for event in _events(file) if file.exists() else ():
            if isinstance(event, JobStarted | TopologyDescribed):
                newest[type(event)] = event
    unfinished = head.with_name(f"{head.name}.tmp")
    unfinished.write_bytes(b"".join(_encoder.encode(event) + b"\n" for event in newest.values()))
    unfinished.rename(head)


def _head(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def _older(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
