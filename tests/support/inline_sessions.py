"""`run` and `start` with the engine in this process instead of a Spark session."""

from types import SimpleNamespace

import pytest

from resurge.api import running
from resurge.testing.inline_runner import InlineRunner


class InlineSession(InlineRunner):
    """A runner that has a session to stop, as one on Spark does."""

    def __init__(self, ended: list[str], name: str) -> None:
        super().__init__(2)
        self.spark = SimpleNamespace(stop=lambda: ended.append(name))


def run_inline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let jobs run inline; the names of the sessions that were stopped."""
    ended: list[str] = []
    monkeypatch.setattr(running, "runner_on", lambda master, name, *rest: InlineSession(ended, name))
    return ended
