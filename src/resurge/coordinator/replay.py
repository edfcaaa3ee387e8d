"""Handle the inputs of a log again, and compare what is decided with what was."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from resurge.coordinator.canonical import digest
from resurge.coordinator.commands import Command
from resurge.coordinator.decisions import decided, mark
from resurge.coordinator.handle import handle
from resurge.coordinator.input_log import Began, Ended, Entry, Handled
from resurge.coordinator.inputs import Input
from resurge.coordinator.snapshots import decoded
from resurge.coordinator.state import JobState
from resurge.errors import CorruptFileError


@dataclass(frozen=True)
class Replayed:
    """One entry of a log, handled again: the commands and the state; `difference` says how they differ from what was logged."""

    number: int
    at_s: float
    event: Input | None
    commands: tuple[Command, ...]
    state: JobState
    difference: str = ""


def replayed(entries: Iterable[Entry]) -> Iterator[Replayed]:
    """Every entry in order; it ends after the first that differs, because what follows would differ for that reason."""
    state: JobState | None = None
    for number, entry in enumerate(entries):
        if isinstance(entry, Began):
            state = decoded(entry.state)
            assert isinstance(state, JobState)
            yield Replayed(number, entry.at_s, None, (), state)
            continue
        if state is None:
            raise CorruptFileError("the log begins with an input; expected a state before it")
        if isinstance(entry, Ended):
            found = "" if digest(state) == entry.digest else f"the state is {digest(state):08x}; logged was {entry.digest:08x}"
            step = Replayed(number, entry.at_s, None, (), state, found)
        else:
            state, commands = handle(state, entry.event, entry.at_s)
            step = Replayed(number, entry.at_s, entry.event, commands, state, _difference(entry, commands, state))
        yield step
        if step.difference:
            return


def _difference(entry: Handled, commands: tuple[Command, ...], state: JobState) -> str:
    now = decided(commands)
    if now != entry.decided:
        return f"decided now: {'; '.join(now) or 'nothing'}; logged was: {'; '.join(entry.decided) or 'nothing'}"
    return "" if mark(state) == entry.mark else "the same commands, but another state"
