"""The telemetry log: one JSON object a line, written as things happen."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from resurge.telemetry.events import Event

_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()

Listener = Callable[[Event], None]


class TelemetryLog:
    """Appends events to a file and tells listeners, one event at a time; either may be absent."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.listeners: list[Listener] = []
        self._file = None
        self._writing = threading.RLock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)

    def write(self, event: Event) -> None:
        """Record an event."""
        with self._writing:
            if self._file is not None:
                self._file.write(_encoder.encode(event) + b"\n")
            for listener in self.listeners:
                listener(event)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "TelemetryLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_events(path: Path) -> Iterator[Event]:
    """The events of a log; a last line that was cut off by a crash is left out."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield _decoder.decode(line)
            except msgspec.DecodeError:
                continue
