"""Writes a driver's inputs to a log, in a thread of its own: states are values, so that they can be written while epochs go on."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from resurge.coordinator import input_log
from resurge.coordinator.commands import Command
from resurge.coordinator.input_log import MAGIC, Entry
from resurge.coordinator.inputs import Input
from resurge.coordinator.state import JobState
from resurge.telemetry.log import open_for_owner

LOG_BYTES = 16 * 1024 * 1024
OLDER_KEPT = 3
TOGETHER_S = 0.25
"""Inputs of so long a time are written together: a driver that is killed loses no more than these from its log."""
CLOSING_S = 10.0


@dataclass(frozen=True)
class _Item:
    """An input with what came of it; without an input, a state that began or the end."""

    at_s: float
    event: Input | None
    commands: tuple[Command, ...]
    state: JobState
    is_end: bool = False


class InputRecorder:
    """Appends inputs to a log, which is renamed when it is full; a log that cannot be written is given up, never the job."""

    def __init__(self, path: Path, warn: Callable[[str], None], limit_bytes: int = LOG_BYTES) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self._warn = warn
        self._items: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._file: FileIO | None = None
        self._writer = threading.Thread(target=self._write_all, name="resurge-inputs", daemon=True)
        self._writer.start()

    def began(self, at_s: float, state: JobState) -> None:
        """A state that no input made."""
        self._items.put(_Item(at_s, None, (), state))

    def handled(self, at_s: float, event: Input, commands: tuple[Command, ...], state: JobState) -> None:
        """An input was handled."""
        self._items.put(_Item(at_s, event, commands, state))

    def close(self, at_s: float, state: JobState) -> None:
        """Write what is left, and the digest of the last state."""
        self._items.put(_Item(at_s, None, (), state, is_end=True))
        self._writer.join(CLOSING_S)

    def _write_all(self) -> None:
        is_ended = False
        try:
            while not is_ended:
                items = [self._items.get()]
                if not items[0].is_end:
                    time.sleep(TOGETHER_S)
                while not self._items.empty():
                    items.append(self._items.get())
                is_ended = items[-1].is_end
                self._write(items)
        except Exception as error:
            # Whatever it is: the log helps to find faults, it must not be one.
            self._warn(f"inputs are not recorded any more: {self.path}: {type(error).__name__}: {error}")
            while not is_ended:
                is_ended = self._items.get().is_end
        finally:
            if self._file is not None:
                self._file.close()

    def _write(self, items: list[_Item]) -> None:
        entries = [_entry(item) for item in items]
        self._append(input_log.block(entries))
        if self.path.stat().st_size > self.limit_bytes and not items[-1].is_end:
            last = items[-1]
            self._append(input_log.block([input_log.ended(last.at_s, last.state)]))
            self._rotate()
            self._append(input_log.block([input_log.began(last.at_s, last.state)]))

    def _append(self, content: bytes) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                # The end of an earlier driver's log may be torn.
                self._rotate()
            self._file = open_for_owner(self.path)
            self._file.write(MAGIC)
        self._file.write(content)

    def _rotate(self) -> None:
        """Rename the log that is full; of those before it, some are kept."""
        if self._file is not None:
            self._file.close()
            self._file = None
        for number in range(OLDER_KEPT - 1, 0, -1):
            if older(self.path, number).exists():
                older(self.path, number).replace(older(self.path, number + 1))
        self.path.replace(older(self.path, 1))


def older(path: Path, number: int) -> Path:
    """A log that was full, the newest being number 1."""
    return path.with_name(f"{path.name}.{number}")


def _entry(item: _Item) -> Entry:
    if item.is_end:
        return input_log.ended(item.at_s, item.state)
    if item.event is None:
        return input_log.began(item.at_s, item.state)
    return input_log.handled(item.at_s, item.event, item.commands, item.state)
