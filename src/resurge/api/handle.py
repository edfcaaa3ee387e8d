"""A job that runs in the background of a notebook or program: look at it, wait for it, stop it."""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from types import TracebackType

import polars as pl

from resurge.errors import JobError
from resurge.model.names import NodeId, query_of
from resurge.model.requests import PRECOPY, Answer, Ask, Balance, Drain, Move, Scale, Verdict
from resurge.report.plots import all_plots
from resurge.runtime.driver.engine import Engine
from resurge.storage.durable import DurableStore
from resurge.storage.requests import carried_out
from resurge.telemetry import events, metrics
from resurge.telemetry.wording import NOT_KNOWN, bytes_in_words, rows_in_words, seconds_in_words

EVENTS_KEPT = 20_000
ANSWER_S = 120.0
"""How long a request to the running job waits for its answer."""
STYLE = (
    "<style>.resurge{--ink:#333;--faint:#ccc;--first:#1971c2;--second:#e8710a;--mark:#c92a2a}"
    "@media(prefers-color-scheme:dark){.resurge{--ink:#ddd;--faint:#555;--first:#4dabf7;--second:#ff922b;--mark:#ff6b6b}}</style>"
)


@dataclass(frozen=True)
class JobStatus:
    """Where a job stands; `state` is running, stopping, finished or failed."""

    job: str
    state: str
    epoch: int
    rows: int
    rows_per_s: float | None
    latency_s: float | None
    lag_rows: int | None
    state_bytes: int
    checkpoint_epoch: int | None
    queries_live: int
    queries: int
    problem: str = ""

    def rows_of_table(self) -> list[tuple[str, str]]:
        """Names and values as people read them."""
        pairs = [
            ("state", self.state),
            ("epoch", f"{self.epoch:,}"),
            ("queries live", f"{self.queries_live} of {self.queries}"),
            ("input rows", rows_in_words(self.rows)),
            ("rows per second", rows_in_words(self.rows_per_s)),
            ("latency, median", seconds_in_words(self.latency_s)),
            ("rows that wait", rows_in_words(self.lag_rows)),
            ("size of state", bytes_in_words(self.state_bytes)),
            ("checkpoint", f"epoch {self.checkpoint_epoch:,}" if self.checkpoint_epoch is not None else NOT_KNOWN),
        ]
        return [*pairs, ("problem", self.problem)] if self.problem else pairs

    def __str__(self) -> str:
        return "\n".join([self.job, *(f"  {name:16} {value}" for name, value in self.rows_of_table())])

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in self.rows_of_table()
        )
        return f"<table><caption>{escape(self.job)}</caption>{cells}</table>"


@dataclass(frozen=True)
class Plots:
    """Drawings of a run; a notebook shows them, `svg` has them one by one."""

    svg: dict[str, str]

    def __repr__(self) -> str:
        return f"<plots: {', '.join(self.svg)}>"

    def _repr_html_(self) -> str:
        drawn = "".join(f"<h4>{escape(title)}</h4>{svg}" for title, svg in self.svg.items())
        return f"{STYLE}<div class='resurge'>{drawn or 'nothing to draw yet'}</div>"


class RunningJob:
    """A job that `resurge.start` began; use it in a `with` statement, or call `stop`."""

    def __init__(self, engine: Engine, run: Callable[[], None], release: Callable[[], None]) -> None:
        self._engine = engine
        self._run = run
        self._release = release
        self._changed = threading.Condition()
        self._events: deque[events.Event] = deque(maxlen=EVENTS_KEPT)
        self._started: events.JobStarted | None = None
        self._down: set[str] = set()
        self._rows = 0
        self._epochs = 0
        self._error: BaseException | None = None
        self._is_over = False
        engine.telemetry.listeners.append(self._take)
        self._thread = threading.Thread(target=self._work, name=f"resurge {engine.topology.name}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the job still runs."""
        return not self._is_over

    def status(self) -> JobStatus:
        """Where the job stands now."""
        with self._changed:
            now = metrics.snapshot([*self._beginning(), *self._events], 0.0)
            down = {query_of(name) for name in self._down} & set(self._engine.topology.queries)
            return JobStatus(
                self._engine.topology.name,
                self._state(),
                now.epoch,
                self._rows,
                now.rows_per_s,
                now.latency_s.p50 if now.latency_s is not None else None,
                now.lag_rows,
                now.state_bytes,
                now.checkpoint_epoch,
                len(self._engine.topology.queries) - len(down),
                len(self._engine.topology.queries),
                str(self._error) if self._error is not None else "",
            )

    def await_epochs(self, epochs: int, timeout_s: float | None = None) -> JobStatus:
        """Wait until so many more epochs are committed, or until the job ends; a job that failed raises its error."""
        with self._changed:
            wanted = self._epochs + epochs
            came = self._changed.wait_for(lambda: self._epochs >= wanted or self._is_over, timeout_s)
            missing = wanted - self._epochs
        if self._error is not None:
            raise self._error
        if not came:
            raise JobError(f"waited {timeout_s} s for {epochs} epochs; {missing} are missing: wait longer, or look at status()")
        return self.status()

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Wait until the job ends by itself; a job that failed raises its error."""
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        return self.status()

    def stop(self, timeout_s: float | None = None) -> JobStatus:
        """Finish the current epoch, make a checkpoint and end; a job that failed before raises its error."""
        self._engine.stop()
        return self.wait(timeout_s)

    def move(
        self, operator: str, key_groups: Iterable[int] = (), *, to: str, how: str = PRECOPY, timeout_s: float = ANSWER_S
    ) -> Answer:
        """Move key groups of an operator (all, if none is named) to a node while the job runs; refusals raise `JobError`."""
        return self._asked(Move(_new_request(), operator, NodeId(to), sorted(key_groups), how), timeout_s)

    def drain(self, node: str, *, timeout_s: float = ANSWER_S) -> Answer:
        """Move everything away from a node, which may go then; nothing is put there again as long as this driver runs."""
        return self._asked(Drain(_new_request(), NodeId(node)), timeout_s)

    def balance(self, *, dry_run: bool = False, timeout_s: float = ANSWER_S) -> Answer:
        """Move few and cheap key groups so that load is even; or only say which would move."""
        return self._asked(Balance(_new_request(), is_dry_run=dry_run), timeout_s)

    def scale(self, nodes: int, *, timeout_s: float = ANSWER_S) -> Answer:
        """Have so many nodes, within the bounds that the job was started with."""
        return self._asked(Scale(_new_request(), nodes), timeout_s)

    def _asked(self, asked: Ask, timeout_s: float) -> Answer:
        engine = self._engine
        answer = carried_out(DurableStore(engine.store.url), engine.journal.generation, asked, timeout_s)
        if answer.verdict is not Verdict.DONE:
            raise JobError(f"{answer.verdict.value}: {answer.text}")
        return answer

    def queries(self) -> pl.DataFrame:
        """One row per query: priority, whether it is live, rows published, latency."""
        with self._changed:
            told = [*self._beginning(), *self._events]
            down = {query_of(name) for name in self._down}
        found = metrics.summaries(told)
        return pl.DataFrame(
            {
                "query": [known.query for known in found],
                "priority": [known.priority for known in found],
                "live": [known.query not in down for known in found],
                "rows": [known.rows for known in found],
                "latency_p50_s": [known.latency_s.p50 if known.latency_s else None for known in found],
                "latency_p99_s": [known.latency_s.p99 if known.latency_s else None for known in found],
            },
            schema_overrides={"latency_p50_s": pl.Float64, "latency_p99_s": pl.Float64},
        )

    def epochs(self) -> pl.DataFrame:
        """One row per committed epoch, the newest last."""
        with self._changed:
            found = metrics.finished_epochs(self._events)
        return pl.DataFrame(
            {
                "epoch": [known.epoch for known in found],
                "committed": [datetime.fromtimestamp(known.at_s, UTC) for known in found],
                "rows": [known.rows_read for known in found],
                "took_s": [known.took_s for known in found],
                "latency_max_s": [max(known.latency_s.values(), default=None) for known in found],
                "state_bytes": [known.state_bytes for known in found],
            },
            schema_overrides={"latency_max_s": pl.Float64, "committed": pl.Datetime("us", "UTC")},
        )

    def plot(self) -> Plots:
        """Throughput, latency, state and, after a failure, the recovery."""
        with self._changed:
            told = [*self._beginning(), *self._events]
        return Plots({plot.title: plot.svg for plot in all_plots(told)})

    def __enter__(self) -> "RunningJob":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._engine.stop()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def __repr__(self) -> str:
        return f"<{self._engine.topology.name}: {self._state()}, {self._epochs} epochs>"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_() + self.queries()._repr_html_()

    def _state(self) -> str:
        if self._error is not None:
            return "failed"
        if self._is_over:
            return "finished"
        return "stopping" if self._engine.stopping.is_set() else "running"

    def _beginning(self) -> list[events.Event]:
        """The start, once so much has happened that it is no longer among the events that are kept."""
        is_kept = self._started is None or len(self._events) < EVENTS_KEPT
        return [] if is_kept or self._started is None else [self._started]

    def _take(self, event: events.Event) -> None:
        with self._changed:
            self._events.append(event)
            if isinstance(event, events.JobStarted):
                self._started = event
            elif isinstance(event, events.QueriesChanged):
                self._down = (self._down | set(event.down)) - set(event.back)
            elif isinstance(event, events.EpochFinished) and not event.replayed:
                self._epochs += 1
                self._rows += event.rows_read
                self._changed.notify_all()

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._error = error
        finally:
            try:
                self._release()
            finally:
                with self._changed:
                    self._is_over = True
                    self._changed.notify_all()


def _new_request() -> str:
    return uuid.uuid4().hex[:12]
