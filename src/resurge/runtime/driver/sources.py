"""The driver's side of the sources: readers, offsets, splits, lag."""

import time
from dataclasses import dataclass
from typing import Any

from resurge.connectors.contracts import Offset, ReadLimit, SourceReader
from resurge.connectors.reading import latest_offset
from resurge.errors import ResurgeError, SourceError, TopologyError
from resurge.model.topology import Topology
from resurge.model.user_code import user_traceback
from resurge.operators.stateless import SourceOperator
from resurge.protocols.epoch import shares
from resurge.runtime.driver.runner import Runner
from resurge.runtime.worker.messages import Split
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.journal import EpochPlanned
from resurge.storage.skips import read_skips
from resurge.telemetry.events import LagMeasured

LAG_EVERY_S = 2.0


@dataclass(frozen=True)
class StoredSourceLog:
    """A source's own log in the durable store."""

    store: DurableStore
    source: str

    def create(self, number: int, content: bytes) -> bool:
        """Write an entry if its number is free."""
        return self.store.create(paths.source_entry(self.source, number), content)

    def read(self, number: int) -> bytes:
        """An entry's content."""
        return self.store.read(paths.source_entry(self.source, number))

    def numbers(self) -> list[int]:
        """The numbers of all entries."""
        found = (paths.number_of(name) for name in self.store.names(paths.source_folder(self.source)))
        return sorted(number for number in found if number is not None)

    def remove(self, number: int) -> None:
        """Delete an entry that is never read again."""
        self.store.remove(paths.source_entry(self.source, number))

    def skipped(self) -> list[str]:
        """The files that the user has chosen to skip."""
        return [skip.file for skip in read_skips(self.store) if skip.source == self.source]


class Sources:
    """All sources of a topology, as the driver sees them."""

    def __init__(self, topology: Topology, store: DurableStore) -> None:
        self.store = store
        self.readers: dict[str, SourceReader] = {}
        for operator in topology.operators.values():
            if isinstance(operator, SourceOperator):
                self.readers[operator.name] = _reader(operator, StoredSourceLog(store, operator.name))
        self.demands: dict[str, int | None] = dict.fromkeys(self.readers)
        self._lag: LagMeasured | None = None
        self.is_capped = False

    def begin(self, runner: Runner) -> None:
        """Start what readers run by themselves, such as the query of a streaming DataFrame."""
        for name, reader in self.readers.items():
            self._called(name, reader.start, runner.session, self.store.location(paths.source_folder(name)))

    def initial(self) -> dict[str, Offset]:
        """Where every source begins."""
        return {name: self._called(name, reader.initialOffset) for name, reader in self.readers.items()}

    def next_offsets(self, reached: dict[str, Offset], limit: int | None) -> dict[str, tuple[Offset, Offset]]:
        """What the next epoch reads of each source: together at most the limit."""
        allotted = shares(limit, self.demands) if limit is not None else {}
        self.is_capped = False
        offsets = {}
        for name, reader in self.readers.items():
            share = allotted.get(name)
            end = self._called(name, latest_offset, reader, reached[name], ReadLimit(share))
            offsets[name] = reached[name], end
            if limit is not None and share is not None:
                self._learn_demand(name, reader.rows_between(reached[name], end), share, limit)
        return offsets

    def _learn_demand(self, name: str, rows: int | None, share: int, limit: int) -> None:
        """A source that took all it might gets as much as it can; others get room to double, and never less than a little."""
        is_capped = rows is not None and rows >= share
        self.is_capped = self.is_capped or is_capped
        least = limit // (4 * len(self.readers))
        self.demands[name] = None if rows is None or is_capped else max(2 * rows, least)

    def splits(self, planned: EpochPlanned) -> list[Split]:
        """The splits of an epoch, in the fixed order: source by name, then the reader's own order."""
        # By value where the class is the user's own: executors do not have the user's file.
        from pyspark import cloudpickle

        found = []
        for name in sorted(planned.offsets):
            start, end = planned.offsets[name]
            if start == end:
                continue
            for index, partition in enumerate(self._called(name, self.readers[name].partitions, start, end)):
                found.append(Split(name, planned.epoch, index, cloudpickle.dumps(partition)))
        return found

    def arrival_s(self, offsets: dict[str, tuple[Offset, Offset]]) -> float:
        """Mean arrival time of an epoch's rows where a source knows it, else now."""
        times = [self.readers[name].arrival_s(start, end) for name, (start, end) in offsets.items() if start != end]
        known = [value for value in times if value is not None]
        return sum(known) / len(known) if known else time.time()

    def newest(self, reached: dict[str, Offset]) -> dict[str, Offset | None]:
        """How far each source has got by now, where it can tell."""
        return {name: self._called(name, reader.newest_offset, reached[name]) for name, reader in self.readers.items()}

    def lag_rows(self, reached: dict[str, Offset], newest: dict[str, Offset | None]) -> int | None:
        """How many rows wait, where all sources can tell."""
        total = 0
        for name, reader in self.readers.items():
            end = newest[name]
            waiting = None if end is None else self._called(name, reader.rows_between, reached[name], end)
            if waiting is None:
                return None
            total += waiting
        return total

    def lag_by_partition(self, reached: dict[str, Offset], newest: dict[str, Offset | None], now_s: float) -> LagMeasured | None:
        """How many rows wait in each partition of the sources that know their partitions; None if it was told a moment ago."""
        found: dict[str, dict[str, int]] = {}
        for name, reader in self.readers.items():
            end = newest[name]
            waiting = {} if end is None else self._called(name, reader.lag_by_partition, reached[name], end)
            if waiting:
                found[name] = waiting
        before = self._lag
        # The last rows of a burst are told at once: there may be no later epoch to tell of them.
        is_due = before is None or now_s - before.at_s >= LAG_EVERY_S or not _waiting(found)
        if not found or not is_due or (before is not None and before.sources == found):
            return None
        self._lag = LagMeasured(now_s, found)
        return self._lag

    def commit(self, reached: dict[str, Offset]) -> None:
        """Tell the sources what will never be read again."""
        for name, reader in self.readers.items():
            if name in reached:
                self._called(name, reader.commit, reached[name])

    def stop(self) -> None:
        """Let go of what readers hold."""
        for name, reader in self.readers.items():
            self._called(name, reader.stop)

    def _called(self, name: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ResurgeError:
            raise
        except Exception as error:
            raise SourceError(
                f"source {name!r} failed: {type(error).__name__}: {error}; fix the source and run the same command again; no data was lost"
                f"{user_traceback(error)}"
            ) from error


def _reader(operator: SourceOperator, log: StoredSourceLog) -> SourceReader:
    reader = operator.source.reader(log)
    if not isinstance(reader, SourceReader):
        raise TopologyError(
            f"source {operator.name!r} made a reader of the class {type(reader).__name__}; expected a SourceReader: derive from it, "
            "or wrap a PySpark reader in PythonSource"
        )
    return reader


def _waiting(lag: dict[str, dict[str, int]]) -> int:
    return sum(sum(partitions.values()) for partitions in lag.values())
