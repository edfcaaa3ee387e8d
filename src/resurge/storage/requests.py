"""Requests to a running driver, and its answers, as files of the durable store: no port is opened.

A request is addressed to one generation, so a driver that was superseded finds none and answers none that matters.
"""

import time
from collections.abc import Callable

import msgspec

from resurge.errors import JobError, StorageError
from resurge.model.requests import Answer, Ask, Verdict
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.journal import Journal

MOST_ANSWERS = 2
LOOK_S = 0.2


def ask(store: DurableStore, generation: int, asked: Ask) -> None:
    """Write a request for the driver of a generation."""
    if not store.create(paths.request(generation, asked.request), msgspec.json.encode(asked)):
        raise StorageError(f"a request {asked.request!r} is there already; expected a new name: ask again")


def withdraw(store: DurableStore, generation: int, name: str) -> None:
    """Remove a request, so that no driver finds it later."""
    store.remove(paths.request(generation, name))


def asked(store: DurableStore, generation: int) -> list[str]:
    """The names of the requests to a generation, answered or not."""
    prefix = f"{paths.REQUESTS}/{generation:06d}-"
    found = (name for name in store.names(paths.REQUESTS) if name.startswith(prefix) and name.endswith(".json"))
    return [name.removeprefix(prefix).removesuffix(".json") for name in found]


def read_request(store: DurableStore, generation: int, name: str) -> Ask | Answer:
    """A request; or the refusal of a file that is none."""
    try:
        asked = msgspec.json.decode(store.read(paths.request(generation, name)), type=Ask)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Answer(Verdict.REFUSED, f"the request cannot be read ({error}); is the command of another version than the job?")
    return (
        asked if asked.request == name else Answer(Verdict.REFUSED, f"the request calls itself {asked.request!r}, not {name!r}")
    )


def answer(store: DurableStore, generation: int, name: str, given: Answer) -> None:
    """Answer a request; a final answer may follow one that accepts."""
    for number in range(1, MOST_ANSWERS + 1):
        if store.create(paths.answer(generation, name, number), msgspec.json.encode(given)):
            return


def answers(store: DurableStore, generation: int, name: str) -> list[Answer]:
    """What has been answered so far."""
    found = []
    for number in range(1, MOST_ANSWERS + 1):
        try:
            found.append(msgspec.json.decode(store.read(paths.answer(generation, name, number)), type=Answer))
        except FileNotFoundError:
            break
    return found


def forget_before(store: DurableStore, generation: int) -> None:
    """Remove what was asked of earlier drivers."""
    for name in store.names(paths.REQUESTS):
        number = paths.number_of(name)
        if number is not None and number < generation:
            store.remove(name)


def carried_out(
    store: DurableStore, generation: int, asked: Ask, timeout_s: float, accepted: Callable[[Answer], None] | None = None
) -> Answer:
    """Ask, and wait for the final answer; a request that nobody answers is withdrawn."""
    ask(store, generation, asked)
    deadline_s, given = time.monotonic() + timeout_s, list[Answer]()
    while not (given and given[-1].is_final) and time.monotonic() < deadline_s:
        time.sleep(LOOK_S)
        given = answers(store, generation, asked.request)
        if given and accepted is not None and not given[0].is_final:
            accepted(given[0])
            accepted = None
    if given and given[-1].is_final:
        return given[-1]
    withdraw(store, generation, asked.request)
    journal = Journal(store)
    journal.read()
    if journal.generation != generation:
        raise JobError("another driver has taken the job over meanwhile; ask again")
    if given:
        raise JobError(
            f"the job accepted the request and has not finished it within {timeout_s:g} s; it goes on: see its dashboard"
        )
    raise JobError(f"no driver answered within {timeout_s:g} s; expected the job at {store.shown_url} to be running: is it?")
