"""Run a topology in this process, stop it, run it again, and look at what was shown."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from resurge.api.builder import Stream, TopologyBuilder
from resurge.connectors.sinks import MemorySink
from resurge.model.topology import Topology
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.telemetry.events import Event, Warned
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner


class GatheringRunner(InlineRunner):
    """Every other epoch that is small runs in one slot, as on Spark all of them would."""

    gathers = False

    @property
    def has_costly_slots(self) -> bool:  # type: ignore[override]
        """Whether the next epoch runs in one slot."""
        self.gathers = not self.gathers
        return self.gathers


@dataclass
class Bench:
    """One job's folder, its sink (which outlives its drivers) and the events of all of them."""

    folder: Path
    sink: MemorySink = field(default_factory=MemorySink)
    events: list[Event] = field(default_factory=list)

    @property
    def store(self) -> Path:
        """Where journal and checkpoints are."""
        return self.folder / "job"

    def engine(self, topology: Topology, **options: object) -> Engine:
        """A driver for the job in this folder; load is not balanced, so that it is known which partition is where."""
        telemetry = TelemetryLog()
        telemetry.listeners.append(self.events.append)
        slots = options.pop("slots", 2)
        runner = (GatheringRunner if options.pop("gathers", False) else InlineRunner)(slots)  # type: ignore[arg-type]
        paths = {"checkpoint_url": str(self.store), "local_root": str(self.folder)}
        defaults = {**paths, "interval_s": 0, "checkpoint_interval": 2, "balance": "off"}
        return Engine(topology, runner, RunOptions(**{**defaults, **options}), telemetry)  # type: ignore[arg-type]

    def warnings(self) -> list[str]:
        """What was warned of."""
        return [event.message for event in self.events if isinstance(event, Warned)]

    def shown(self) -> dict[str, pl.DataFrame]:
        """Each query's committed rows with their epoch, sorted."""
        queries = {query for query, _, _ in self.sink._frames}
        return {query: self.sink.table(query, epoch=True).sort(pl.all()) for query in sorted(queries)}


@contextlib.contextmanager
def started(engine: Engine) -> Iterator[Engine]:
    """A started engine that is closed as by a crash: without a last checkpoint."""
    engine.start()
    try:
        yield engine
    finally:
        with contextlib.suppress(Exception):
            engine.close("the test is over")


def finish(engine: Engine, *, drain: bool = True) -> None:
    """Run to the end of the input and stop in an orderly way."""
    engine.start()
    try:
        engine.run(until_idle=True, drain=drain)
    except BaseException as error:
        engine.close(str(error) or "failed")
        raise
    engine.close()


def asked(job: TopologyBuilder, sink: MemorySink, streams: Mapping[str, Stream]) -> Topology:
    """The topology with a query per stream."""
    for name, stream in streams.items():
        stream.query(name, sink=sink)
    return job.build()


def assert_same_output(found: Mapping[str, pl.DataFrame], wanted: Mapping[str, pl.DataFrame], what: str = "") -> None:
    """Row for row, with epochs."""
    assert sorted(found) == sorted(wanted), what
    for query, rows in wanted.items():
        assert found[query].equals(rows), f"{what}: query {query!r} shows\n{found[query]}\ninstead of\n{rows}"
