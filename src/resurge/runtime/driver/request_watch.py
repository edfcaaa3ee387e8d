"""Looks for requests to this driver in the durable store, tells the engine, and writes the answers."""

import contextlib
import threading
from collections.abc import Callable

import msgspec

from resurge.errors import ResurgeError
from resurge.model.names import NodeId
from resurge.model.requests import Answer, Ask, Drain, Move, Verdict
from resurge.storage import requests
from resurge.storage.durable import DurableStore
from resurge.telemetry.events import Event, NodeNamed

LOOK_S = 0.5
STOPPED = "the driver stopped before the request was carried out; ask again when the job runs"


class RequestWatch:
    """One thread that looks; what it finds is told once, and answered by the thread that decides."""

    def __init__(self, url: str, generation: int, tell: Callable[[Ask], None]) -> None:
        # Of its own: a file system object is not shared by threads.
        self._looking = DurableStore(url)
        self._answering = DurableStore(url)
        self._generation = generation
        self._tell = tell
        self._seen: set[str] = set()
        self._open: set[str] = set()
        self._ids: dict[str, NodeId] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="requests", daemon=True)

    def start(self) -> None:
        """Begin to look, after removing what was asked of earlier drivers."""
        with contextlib.suppress(ResurgeError):
            requests.forget_before(self._answering, self._generation)
        self._thread.start()

    def listen(self, event: Event) -> None:
        """Learn what users call nodes."""
        if isinstance(event, NodeNamed):
            self._ids[event.name] = NodeId(event.node)

    def respond(self, name: str, given: Answer) -> None:
        """Answer a request. A store that cannot take the answer must not end the job."""
        if given.is_final:
            self._open.discard(name)
        with contextlib.suppress(ResurgeError):
            requests.answer(self._answering, self._generation, name, given)

    def close(self) -> None:
        """Stop looking; whoever waits is told."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for name in sorted(self._open):
            self.respond(name, Answer(Verdict.FAILED, STOPPED))

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            # A store that does not answer for a moment is asked again.
            with contextlib.suppress(ResurgeError, FileNotFoundError):
                for name in requests.asked(self._looking, self._generation):
                    if name not in self._seen:
                        self._take(name)

    def _take(self, name: str) -> None:
        asked = requests.read_request(self._looking, self._generation, name)
        self._seen.add(name)
        self._open.add(name)
        if isinstance(asked, Answer):
            self.respond(name, asked)
        else:
            self._tell(self._named(asked))

    def _named(self, asked: Ask) -> Ask:
        """The request with the engine's names of nodes, where the user gave his own."""
        if isinstance(asked, Move):
            return msgspec.structs.replace(asked, target=self._ids.get(asked.target, asked.target))
        if isinstance(asked, Drain):
            return msgspec.structs.replace(asked, node=self._ids.get(asked.node, asked.node))
        return asked
