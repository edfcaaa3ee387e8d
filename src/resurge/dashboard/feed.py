"""The state that all open pages share: fed by a log and a store, read by requests; everything else is a view of it."""

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resurge.dashboard.following import LogFollower
from resurge.dashboard.model import JobState
from resurge.dashboard.store import store_view
from resurge.dashboard.view import history_view, incident_view, node_view, now_view, operator_view, query_view, topology_view

STORE_EVERY_S = 3.0
MOST_READ_TIMES = 100


@dataclass
class Feed:
    """A job's state, kept up to date by `poll`."""

    log: Path
    url: str | None = None
    is_live: bool = True
    job: JobState = field(default_factory=JobState)
    store: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._follower = LogFollower(self.log)
        self._lock = threading.Lock()
        self._store_read_s = 0.0

    def poll(self) -> None:
        """Take what was added to the log, and look at the store when that is due."""
        for _ in range(MOST_READ_TIMES):
            found = self._follower.poll()
            if not found:
                break
            with self._lock:
                for event in found:
                    self.job.take(event)
        if self.url is not None and time.monotonic() - self._store_read_s >= STORE_EVERY_S:
            # The more a store costs to read, the less often it is read.
            self.store = store_view(self.url)
            self._store_read_s = time.monotonic() + 10 * float(self.store.get("read_s", 0.0))

    def now(self) -> dict[str, Any]:
        """Where the job stands."""
        with self._lock:
            return now_view(self.job, time.time(), self.store, is_live=self.is_live)

    def history(self) -> dict[str, Any]:
        """Charts and strips."""
        with self._lock:
            return history_view(self.job)

    def topology(self) -> dict[str, Any] | None:
        """The drawing."""
        with self._lock:
            return topology_view(self.job)

    def detail(self, kind: str, name: str) -> dict[str, Any] | None:
        """Everything about one query, node, operator or decision; None if there is no such thing."""
        with self._lock:
            if kind == "query":
                return query_view(self.job, name, self.at_s)
            if kind == "node":
                return node_view(self.job, name)
            if kind == "operator":
                return operator_view(self.job, name)
            return incident_view(self.job, int(name)) if kind == "decision" and name.isdigit() else None

    @property
    def at_s(self) -> float:
        """The moment that the page shows."""
        return time.time() if self.is_live and self.job.stopped is None else self.job.last_s
