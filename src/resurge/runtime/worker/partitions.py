"""The states of the partitions that a task advances: found in memory, else in the node's store, else in a checkpoint."""

import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from resurge.errors import CheckpointDamagedError, CorruptFileError
from resurge.operators.base import StatefulOperator
from resurge.operators.program import Program
from resurge.operators.state import KeyedTable, State, TableSpec
from resurge.runtime.storage import paths
from resurge.runtime.storage.durable import DurableStore
from resurge.runtime.storage.node_store import NodeStore
from resurge.runtime.storage.runs import (
    RunRef,
    SavedRun,
    SavedState,
    SavedTable,
    SegmentWriter,
    load_state,
    save_durably,
    save_locally,
)
from resurge.runtime.worker.messages import JobPlan, PartitionReport, PartitionWork, WorkKey

MOST_JOBS = 2


class _Cached(NamedTuple):
    segment: str
    state: State


@dataclass
class _Memory:
    """What a process remembers of a job's local folder. Only a cache, checked by version: another process may be next."""

    states: dict[tuple[str, WorkKey], _Cached] = field(default_factory=dict)
    stores: dict[str, NodeStore] = field(default_factory=dict)


_JOBS: dict[str, _Memory] = {}


def _memory(root: str) -> _Memory:
    """Of the newest jobs only: a session may run many, one after another, and what is mapped takes room though it is deleted."""
    found = _JOBS.get(root) or _Memory()
    if next(reversed(_JOBS), None) != root:
        _JOBS.pop(root, None)
        _JOBS[root] = found
        for older in [*_JOBS][:-MOST_JOBS]:
            _JOBS.pop(older, None)
    return found


def node_store(root: str, node: str) -> NodeStore:
    """The local store of a node; one per process, so that its mappings are shared."""
    return _memory(root).stores.setdefault(node, NodeStore(Path(root) / node))


def table_specs(program: Program, operator: str) -> Mapping[str, TableSpec]:
    """The state tables of an operator."""
    found = program.topology.operators[operator]
    if not isinstance(found, StatefulOperator):
        return {}
    return found.tables([program.topology.shapes[name] for name in found.inputs])


class PartitionStates:
    """Loads, advances and saves the states of one slot at one level."""

    def __init__(self, program: Program, plan: JobPlan, slot: int, level: int) -> None:
        self.program = program
        self.plan = plan
        self.slot = slot
        self.level = level
        self.node = plan.slots[slot].node
        self.store = node_store(plan.local_root, self.node)
        self.store.limit_bytes = plan.local_limit_bytes
        self.remembered = _memory(plan.local_root).states
        self.durable = DurableStore(plan.durable_url) if plan.durable_url else None
        self.states: dict[WorkKey, State] = {}
        self.restore_s = 0.0

    def load(self, work: PartitionWork) -> State:
        """The partition's state before the job."""
        cached = self.remembered.get((self.node, work.key))
        if work.segment is not None and cached is not None and cached.segment == work.segment:
            state = cached.state
        else:
            state = self._loaded(work, cached)
        self.states[work.key] = state
        return state

    def _loaded(self, work: PartitionWork, older: _Cached | None) -> State:
        specs = table_specs(self.program, work.operator)
        if work.segment is not None:
            saved = self.store.manifest(work.segment)[_name(work.key)]
            # Another process ran the partition meanwhile; most of its runs are the ones that this process has already.
            tables = older.state.values() if older is not None else ()
            known = {run.local: run for table in tables for run in table.runs if run.local is not None}
            return load_state(saved, specs, self.store.run, durable=False, known=known)
        if work.restore is not None and self.durable is not None:
            began = time.monotonic()
            restored = self._restored(work.restore, specs)
            self.restore_s += time.monotonic() - began
            return restored
        return {name: KeyedTable(spec) for name, spec in specs.items()}

    def _restored(self, saved: SavedState, specs: Mapping[str, TableSpec]) -> State:
        """The state of a checkpoint; every run is verified as it is read."""
        try:
            return load_state(saved, specs, self._read_durable, durable=True)
        except (FileNotFoundError, CorruptFileError) as error:
            reason = f"{error.filename} is missing" if isinstance(error, FileNotFoundError) else str(error)
            raise CheckpointDamagedError(reason) from error

    def _read_durable(self, reference: RunRef) -> bytes:
        if self.durable is None:
            raise ValueError("expected a durable store")
        content = self.durable.read_range(reference.segment, reference.offset, reference.length)
        if len(content) != reference.length or zlib.crc32(content) != reference.checksum:
            raise CorruptFileError(f"{self.durable.path(reference.segment)} does not fit its checksum: it is torn or was altered")
        return content

    def save(self, reports: Mapping[WorkKey, PartitionReport]) -> None:
        """Write the new versions to the node's store and, at a checkpoint, what is not there yet to the durable one."""
        if not self.states:
            return
        epoch = self.plan.epoch
        name = paths.local_segment(epoch, f"{self.plan.attempt}-{self.level}", self.slot)
        writer = SegmentWriter(name)
        if self.plan.checkpoint:
            self._save_durably(epoch)
        manifest: dict[str, SavedState] = {}
        for key, state in self.states.items():
            local, saved = save_locally(state, writer)
            manifest[_name(key)] = saved
            report = reports[key]
            report.segment = name
            report.segments = sorted({name} | {run.local.split("|", 1)[0] for t in saved.values() for run in t.runs if run.local})
            report.state_rows, report.state_bytes = _size(local)
            if self.plan.checkpoint:
                report.checkpoint = _durable_only(saved)
            self.states[key] = local
        self.store.write(name, writer.finish(msgspec.json.encode(manifest)))
        for key, state in self.states.items():
            self.remembered[self.node, key] = _Cached(name, state)

    def _save_durably(self, epoch: int) -> None:
        if self.durable is None:
            return
        name = paths.checkpoint_segment(epoch, f"{self.plan.attempt}-{self.level}", self.slot)
        writer = SegmentWriter(name)
        for key, state in self.states.items():
            self.states[key] = save_durably(state, writer)
        if writer.size:
            self.durable.create(name, writer.finish(b""))


def _name(key: WorkKey) -> str:
    operator, group, shadow = key
    return f"{operator}/{group}/shadow" if shadow else f"{operator}/{group}"


def _durable_only(saved: SavedState) -> SavedState:
    return {
        name: SavedTable(table.low, [SavedRun(None, run.durable, run.rows, run.highest_bucket) for run in table.runs])
        for name, table in saved.items()
    }


def _size(state: State) -> tuple[int, int]:
    sizes = [table.size() for table in state.values()]
    return sum(rows for rows, _ in sizes), sum(size for _, size in sizes)
