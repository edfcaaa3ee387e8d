"""The states of the key groups that a task advances: found in memory, else in the node's store, else in a checkpoint."""

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from resurge.errors import CheckpointDamagedError, CopyDamagedError, CorruptFileError, StorageError
from resurge.operators.base import StatefulOperator
from resurge.operators.program import Program
from resurge.operators.sorted_runs import TableChange, TableSpec
from resurge.operators.state import KeyedTable, State, joined, joined_changes
from resurge.runtime.worker import checkpoint_writes
from resurge.runtime.worker.calls import Made
from resurge.runtime.worker.grouped import Flags, Integers, mask
from resurge.runtime.worker.messages import GROUPS, LAST_EPOCH, ROWS, CohortReport, CohortWork, JobPlan, SlotReport
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.node_store import NodeStore
from resurge.storage.runs import (
    EpochChange,
    Loader,
    RunRef,
    SavedCohort,
    SegmentWriter,
    known_durable,
    placed_anew,
    save_change,
    save_locally,
    wasteful_segments,
)

MOST_JOBS = 2


class _Cached(NamedTuple):
    key_groups: frozenset[int]
    segment: str
    state: State
    kept: tuple[EpochChange, ...] = ()


@dataclass
class _Memory:
    """What a process remembers of a job's local folder. Only a cache, checked by version: another process may be next."""

    states: dict[tuple[str, str, bool], list[_Cached]] = field(default_factory=dict)
    stores: dict[str, NodeStore] = field(default_factory=dict)
    durable: dict[tuple[str, tuple[str, ...]], dict[str, tuple[str, ...]]] = field(default_factory=dict)


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


@dataclass
class Cohort:
    """Key groups of one operator that take epochs together, with their state; `mine` flags them among all key groups."""

    work: CohortWork
    state: State
    cursor: int
    mine: Flags
    rows_in: Integers
    late_rows: int = 0
    cpu_s: float = 0.0
    kept: tuple[EpochChange, ...] = ()
    has_arrived: bool = False

    @property
    def key_groups(self) -> list[int]:
        """Its key groups, in order."""
        return self.work.key_groups

    def advance(self, epoch: int, made: Made) -> None:
        """Go on to the state that an epoch made."""
        self.state = made.state
        self.late_rows += made.late_rows
        if self.work.keep_after is not None and epoch > self.work.keep_after:
            self.kept = (*self.kept, EpochChange(epoch, made.changes))


class CohortStates:
    """Loads, advances and saves the states of one slot at one level."""

    def __init__(self, program: Program, plan: JobPlan, slot: int, level: int) -> None:
        self.program = program
        self.plan = plan
        self.slot = slot
        self.level = level
        self.total = program.topology.key_groups
        self.node = plan.slots[slot].node
        self.store = node_store(plan.local_root, self.node)
        self.store.limit_bytes = plan.local_limit_bytes
        self.remembered = _memory(plan.local_root).states
        self.durable = DurableStore(plan.durable_url) if plan.durable_url else None
        self.manifests: dict[str, dict[tuple[str, bool], list[SavedCohort]]] = {}
        self.cohorts: list[Cohort] = []
        self.restore_s = 0.0

    def load(self, work: CohortWork) -> Cohort:
        """The key groups with their state before the job."""
        cursor = min(work.until, max(work.cursor, self.plan.epoch))
        nothing = np.zeros(self.total, dtype=np.int64)
        state, kept = self._state(work)
        cohort = Cohort(work, state, cursor, mask(work.key_groups, self.total), nothing, kept=kept)
        self.cohorts.append(cohort)
        return cohort

    def _state(self, work: CohortWork) -> tuple[State, tuple[EpochChange, ...]]:
        specs = table_specs(self.program, work.operator)
        if work.was_copy:
            return self._from_copy(work, specs)
        if work.segment is not None:
            return self._local(work, specs)
        if work.restore is not None and self.durable is not None:
            began = time.monotonic()
            restored = self._restored(work, specs, work.restore)
            self.restore_s += time.monotonic() - began
            return restored, ()
        return {name: KeyedTable(spec) for name, spec in specs.items()}, ()

    def _restored(self, work: CohortWork, specs: Mapping[str, TableSpec], saved: list[SavedCohort]) -> State:
        """The state of a checkpoint; every block is verified as it is read."""
        try:
            return Loader(specs, self.total, self._read_durable).durable(saved, work.key_groups)
        except (FileNotFoundError, CorruptFileError) as error:
            reason = f"{error.filename} is missing" if isinstance(error, FileNotFoundError) else str(error)
            raise CheckpointDamagedError(reason) from error

    def _from_copy(self, work: CohortWork, specs: Mapping[str, TableSpec]) -> tuple[State, tuple[EpochChange, ...]]:
        """What another node shipped, checked once more: it may have lain here for long."""
        try:
            saved = [
                each for each in self.store.manifest(work.segment or "") if each.operator == work.operator and not each.shadow
            ]
            loader = Loader(specs, self.total, self.store.run, verify=True)
            return loader.local([each for each in saved if set(each.key_groups) & set(work.key_groups)], work.key_groups), ()
        except StorageError as error:
            raise CopyDamagedError(f"the copy of {work.operator} {work.key_groups} on node {self.node}: {error}") from error

    def _local(self, work: CohortWork, specs: Mapping[str, TableSpec]) -> tuple[State, tuple[EpochChange, ...]]:
        cached = self.remembered.get((self.node, work.operator, work.shadow), [])
        wanted, after = frozenset(work.key_groups), LAST_EPOCH if work.keep_after is None else work.keep_after
        for known in cached:
            if known.segment == work.segment and known.key_groups == wanted:
                return known.state, tuple(change for change in known.kept if change.epoch > after)
        segment = work.segment or ""
        if segment not in self.manifests:
            found: dict[tuple[str, bool], list[SavedCohort]] = {}
            for saved in self.store.manifest(segment):
                found.setdefault((saved.operator, saved.shadow), []).append(saved)
            self.manifests[segment] = found
        cohorts = self.manifests[segment].get((work.operator, work.shadow), [])
        mine = [saved for saved in cohorts if not wanted.isdisjoint(saved.key_groups)]
        covered = {group for saved in mine for group in saved.key_groups}
        if not wanted <= covered:
            raise StorageError(f"{segment} lacks key groups {sorted(wanted - covered)} of {work.operator!r} on node {self.node}")
        # Another process ran these key groups meanwhile; most of their runs are the ones that this process has already.
        tables = (table for known in cached for table in known.state.values())
        runs = {run.local: run for table in tables for run in table.runs if run.local is not None and run.groups is None}
        loader = Loader(specs, self.total, self.store.run, runs)
        return loader.local(mine, wanted), loader.changes(mine, wanted, after)

    def _read_durable(self, reference: RunRef) -> bytes:
        if self.durable is None:
            raise ValueError("expected a durable store")
        content = self.durable.read_range(reference.segment, reference.offset, reference.length)
        if len(content) != reference.length or zlib.crc32(content) != reference.checksum:
            raise CorruptFileError(f"{self.durable.path(reference.segment)} does not fit its checksum: it is torn or was altered")
        return content

    def save(self, report: SlotReport) -> None:
        """Write the new versions to the node's store; at a checkpoint, what the durable store lacks is written in the background."""
        if not self.cohorts:
            return
        self.cohorts = _met(self.cohorts)
        self._known_durable()
        self._leave_wasteful_segments()
        name = paths.slot_segment(self.plan.epoch, self.plan.attempt, self.level, self.slot)
        writer = SegmentWriter(name)
        manifest, files = [], {name}
        for cohort in self.cohorts:
            began_s = time.monotonic()
            cohort.state, tables = save_locally(cohort.state, writer)
            report.shipping_s += time.monotonic() - began_s if cohort.has_arrived else 0.0
            kept = [save_change(change, writer) for change in cohort.kept]
            cohort.kept = tuple(change for change, _ in kept)
            saved = SavedCohort(cohort.work.operator, cohort.key_groups, tables, cohort.work.shadow, [each for _, each in kept])
            manifest.append(saved)
            files |= saved.local_segments()
            report.cohorts.append(self._report(cohort))
        began_s = time.monotonic()
        self.store.write(name, writer.finish(msgspec.json.encode(manifest)))
        report.shipping_s += time.monotonic() - began_s if any(cohort.has_arrived for cohort in self.cohorts) else 0.0
        report.segment, report.segments = name, sorted(files)
        if self.plan.checkpoint:
            self._take_checkpoint(report, name, manifest)
        for cohort in self.cohorts:
            self._remember(cohort, name)

    def _report(self, cohort: Cohort) -> CohortReport:
        groups, work = np.flatnonzero(cohort.mine), cohort.work
        rows = sum((table.rows_per_group(self.total) for table in cohort.state.values()), np.zeros(self.total, dtype=np.int64))
        return CohortReport(
            work.operator,
            groups.astype(GROUPS).tobytes(),
            work.shadow,
            cohort.cursor,
            shares(cohort.rows_in[groups], rows[groups]),
            cohort.rows_in[groups].astype(ROWS).tobytes(),
            int(rows[groups].sum()),
            sum(table.size()[1] for table in cohort.state.values()),
            cohort.late_rows,
            cohort.cpu_s,
            work.copy,
        )

    def _remember(self, cohort: Cohort, segment: str) -> None:
        place = self.node, cohort.work.operator, cohort.work.shadow
        mine = frozenset(cohort.key_groups)
        others = [known for known in self.remembered.get(place, []) if known.key_groups.isdisjoint(mine)]
        self.remembered[place] = [*others, _Cached(mine, segment, cohort.state, cohort.kept)]

    def _leave_wasteful_segments(self) -> None:
        """Of a segment that is mostly not needed, what is needed goes into the new one; what is kept to be shipped stays a while."""
        wasteful = wasteful_segments([cohort.state for cohort in self.cohorts], self.store.sizes_bytes())
        for cohort in self.cohorts if wasteful else ():
            cohort.state = placed_anew(cohort.state, wasteful)

    def _take_checkpoint(self, report: SlotReport, name: str, manifest: Sequence[SavedCohort]) -> None:
        """Let what the durable store lacks be written in the background, and wait for it if the job does nothing else."""
        primaries = zip(self.cohorts, manifest, strict=True)
        mine = [
            SavedCohort(saved.operator, saved.key_groups, saved.tables)
            for cohort, saved in primaries
            if not (cohort.work.shadow or cohort.work.copy)
        ]
        if self.durable is None or not mine:
            return
        segment = paths.checkpoint_segment(self.plan.epoch, f"{self.plan.attempt}-{self.level}", self.slot)
        checkpoint_writes.take(self.store, name, checkpoint_writes.Taken(self.durable.url, segment, self.total, mine))
        if self.plan.waits:
            report.written[name] = checkpoint_writes.written(self.store, name, waits=True) or []

    def look(self, report: SlotReport) -> None:
        """At the last level, report which parts of the checkpoint that its node writes are durable."""
        awaited = self.plan.slots[self.slot].awaited if self.level == self.program.levels - 1 else []
        for name in awaited:
            found = checkpoint_writes.written(self.store, name, waits=self.plan.waits)
            if found is not None:
                report.written[name] = found

    def _known_durable(self) -> None:
        """Learn which runs the newest checkpoint that counts has, so that the next one names them and writes only others."""
        logged = tuple(self.plan.slots[self.slot].logged)
        if not logged:
            return
        memory = _memory(self.plan.local_root)
        if (self.node, logged) not in memory.durable:
            places = [checkpoint_writes.durable_places(self.store, name) for name in logged]
            memory.durable = {(self.node, logged): {local: durable for found in places for local, durable in found.items()}}
        for cohort in self.cohorts:
            cohort.state = known_durable(cohort.state, memory.durable[self.node, logged])


def shares(rows_in: Integers, state_rows: Integers) -> bytes:
    """Each key group's share of what its call takes: by its rows and, a little, its state; none is free."""
    touched = rows_in + 0.01 * state_rows + 1
    return bytes((touched / touched.sum()).astype("<f4").tobytes())


def _met(cohorts: list[Cohort]) -> list[Cohort]:
    """Key groups of one operator that have reached the same epoch go on together."""
    found: dict[tuple[str, bool, bool, int], list[Cohort]] = {}
    for cohort in cohorts:
        found.setdefault((cohort.work.operator, cohort.work.shadow, cohort.work.copy, cohort.cursor), []).append(cohort)
    return [mine[0] if len(mine) == 1 else _joined(mine) for mine in found.values()]


def _joined(cohorts: list[Cohort]) -> Cohort:
    first = cohorts[0]
    groups = sorted(group for cohort in cohorts for group in cohort.key_groups)
    return Cohort(
        msgspec.structs.replace(first.work, key_groups=groups),
        {name: joined([cohort.state[name] for cohort in cohorts]) for name in first.state},
        first.cursor,
        np.any([cohort.mine for cohort in cohorts], axis=0),
        np.sum([cohort.rows_in for cohort in cohorts], axis=0),
        sum(cohort.late_rows for cohort in cohorts),
        sum(cohort.cpu_s for cohort in cohorts),
        _joined_kept([cohort.kept for cohort in cohorts]),
        any(cohort.has_arrived for cohort in cohorts),
    )


def _joined_kept(kept: Sequence[tuple[EpochChange, ...]]) -> tuple[EpochChange, ...]:
    """The changes of several cohorts, of the epochs that all of them kept."""
    by_epoch = [{change.epoch: change.tables for change in mine} for mine in kept]
    epochs = frozenset(by_epoch[0]).intersection(*by_epoch[1:])
    return tuple(EpochChange(epoch, _joined_tables([mine[epoch] for mine in by_epoch])) for epoch in sorted(epochs))


def _joined_tables(changes: Sequence[Mapping[str, TableChange]]) -> dict[str, TableChange]:
    names = sorted({name for tables in changes for name in tables})
    return {name: joined_changes([tables[name] for tables in changes if name in tables]) for name in names}
