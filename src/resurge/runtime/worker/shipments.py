"""Ship the state of some key groups from one node to another: all of it, or what changed since the receiver's version.

`shipped` runs on the node that has the state and reads only what a committed segment describes. `install` runs on the node that
gets it: the key groups join the job's other cohorts there, and are saved and reported with them. What epochs changed can be
shipped only where the cohort keeps it (`CohortWork.keep_after`); else everything is.
"""

import zlib
from dataclasses import replace

import msgspec

from resurge.errors import CorruptFileError, StorageError
from resurge.operators.program import Program
from resurge.operators.state import State
from resurge.runtime.worker.messages import CohortWork
from resurge.runtime.worker.partitions import Cohort, CohortStates, table_specs
from resurge.storage.node_store import NodeStore
from resurge.storage.runs import (
    EpochChange,
    Loader,
    RunRef,
    SavedChange,
    SavedCohort,
    SavedState,
    SegmentWriter,
    manifest_of,
    save_change,
    save_locally,
)


class Wanted(msgspec.Struct, frozen=True):
    """Asks for the state of some key groups: the segment of the node's store that describes it, and the cursor that it is at.

    A receiver that has the state of an older epoch names it (`since`) and gets what changed after it.
    """

    operator: str
    key_groups: list[int]
    segment: str
    cursor: int
    since: int | None = None


class Shipment(msgspec.Struct, frozen=True):
    """What travels: the state at `cursor`; or, where `since` is a number, what each epoch after that one changed."""

    operator: str
    key_groups: list[int]
    cursor: int
    since: int | None
    tables: SavedState
    changes: list[SavedChange]


def shipped(program: Program, store: NodeStore, wanted: Wanted) -> bytes:
    """The state of some key groups as bytes; only what changed, if the receiver has an older version and the changes are kept."""
    cohorts = [
        saved
        for saved in store.manifest(wanted.segment)
        if saved.operator == wanted.operator and not saved.shadow and not set(saved.key_groups).isdisjoint(wanted.key_groups)
    ]
    missing = set(wanted.key_groups).difference(*(saved.key_groups for saved in cohorts))
    if missing:
        raise StorageError(f"{wanted.segment} lacks key groups {sorted(missing)} of {wanted.operator!r}")
    loader = Loader(table_specs(program, wanted.operator), program.topology.key_groups, store.run)
    changes = _changes(loader, cohorts, wanted)
    writer = SegmentWriter("")
    tables: SavedState = {}
    if changes is None:
        _, tables = save_locally(_unplaced(loader.local(cohorts, wanted.key_groups)), writer)
    saved = [save_change(_unplaced_change(change), writer)[1] for change in changes or ()]
    since = None if changes is None else wanted.since
    content = Shipment(wanted.operator, wanted.key_groups, wanted.cursor, since, tables, saved)
    return b"".join(writer.finish(msgspec.msgpack.encode(content)))


def installed(program: Program, state: State, at: int, content: bytes) -> State:
    """The receiver's state, which is at epoch `at`, after a shipment; what it has already is skipped."""
    shipment = opened(content)
    specs = table_specs(program, shipment.operator)
    loader = Loader(specs, program.topology.key_groups, lambda reference: _part(content, reference))
    if shipment.since is None:
        whole = SavedCohort(shipment.operator, shipment.key_groups, shipment.tables)
        return _unplaced(loader.local([whole], shipment.key_groups))
    if at < shipment.since:
        raise StorageError(
            f"key groups {shipment.key_groups} of {shipment.operator!r} are at epoch {at}; expected {shipment.since} or later, "
            "because only what changed after that was shipped: ship everything"
        )
    cohort = SavedCohort(shipment.operator, shipment.key_groups, {}, kept=shipment.changes)
    for change in map(_unplaced_change, loader.changes([cohort], shipment.key_groups, at)):
        state = {name: table.changed(change.tables[name]) for name, table in state.items()}
    return state


def install(states: CohortStates, work: CohortWork, at: int, content: bytes) -> Cohort:
    """Take a shipment into a job: `work` names the receiver's own version, which is at epoch `at`; its cursor is the shipment's."""
    cohort = states.load(work)
    cohort.state = installed(states.program, cohort.state, at, content)
    cohort.has_arrived = True
    return cohort


def opened(content: bytes) -> Shipment:
    """What a shipment says of itself, checked."""
    return msgspec.msgpack.decode(manifest_of(memoryview(content), "a shipment"), type=Shipment)


def _changes(loader: Loader, cohorts: list[SavedCohort], wanted: Wanted) -> tuple[EpochChange, ...] | None:
    """What each epoch after the receiver's changed; None if not all of it is kept."""
    if wanted.since is None:
        return None
    found = loader.changes(cohorts, wanted.key_groups, wanted.since)
    return found if [change.epoch for change in found] == [*range(wanted.since + 1, wanted.cursor + 1)] else None


def _part(content: bytes, reference: RunRef) -> memoryview:
    part = memoryview(content)[reference.offset : reference.offset + reference.length]
    if len(part) != reference.length or zlib.crc32(part) != reference.checksum:
        raise CorruptFileError(
            f"a shipment of {len(content)} bytes: the run at byte {reference.offset} does not fit its checksum"
        )
    return part


def _unplaced(state: State) -> State:
    """The state without its places in a node's store, which mean nothing on another node."""
    return {name: replace(table, runs=tuple(replace(run, local=None) for run in table.runs)) for name, table in state.items()}


def _unplaced_change(change: EpochChange) -> EpochChange:
    tables = {
        name: replace(table, run=None if table.run is None else replace(table.run, local=None))
        for name, table in change.tables.items()
    }
    return EpochChange(change.epoch, tables)
