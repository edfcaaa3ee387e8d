"""What must stay the same for the life of a job, written once when it begins."""

import secrets

import msgspec

from resurge.connectors.contracts import JobReference
from resurge.errors import CorruptFileError, IncompatibleJobError
from resurge.model.topology import Topology
from resurge.operators.base import StatefulOperator
from resurge.operators.hashing import fingerprint
from resurge.operators.stateless import SourceOperator
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.exclusive_create import refuse_unsafe

LAYOUT = 2
"""What the files of a job look like; a job in another layout is refused."""


class _Layout(msgspec.Struct, frozen=True):
    layout: int = 1


class TableKey(msgspec.Struct, frozen=True):
    """What a reader of a state table must know beyond the columns, which the data tells."""

    key: list[str]
    bucket: str | None


class JobIdentity(msgspec.Struct, frozen=True):
    """The fixed part of a job: its id, and what its state and logs were written by."""

    id: str
    topology: str
    key_groups: int
    hash_fingerprint: str
    operators: dict[str, str]
    tables: dict[str, dict[str, str]]
    table_keys: dict[str, dict[str, TableKey]] = {}
    layout: int = LAYOUT


def identity_of(topology: Topology, job_id: str = "") -> JobIdentity:
    """What this topology would fix, for the job of that id."""
    kept = {
        name: operator.signature()
        for name, operator in topology.operators.items()
        if isinstance(operator, StatefulOperator | SourceOperator)
    }
    specs = {
        name: operator.tables([topology.shapes[i] for i in operator.inputs])
        for name, operator in topology.operators.items()
        if isinstance(operator, StatefulOperator)
    }
    tables = {name: {table: spec.signature() for table, spec in found.items()} for name, found in specs.items()}
    keys = {
        name: {table: TableKey(list(spec.key), spec.bucket) for table, spec in found.items()} for name, found in specs.items()
    }
    return JobIdentity(job_id, topology.name, topology.key_groups, fingerprint(), kept, tables, keys)


def read_identity(store: DurableStore) -> JobIdentity | None:
    """The job that lives in a store, if any."""
    if not store.exists(paths.JOB):
        return None
    try:
        content = store.read(paths.JOB)
        layout = msgspec.json.decode(content, type=_Layout).layout
        if layout != LAYOUT:
            raise IncompatibleJobError(
                f"the job at {store.url} is kept in layout {layout}, but this version of Resurge reads and writes layout {LAYOUT}: "
                "go on with the version that began it, or start a new job with another checkpoint URL"
            )
        return msgspec.json.decode(content, type=JobIdentity)
    except msgspec.DecodeError as error:
        raise CorruptFileError(
            f"{store.path(paths.JOB)} cannot be read: {error}; restore it from a copy, or start a new job"
        ) from error


def claim(store: DurableStore, topology: Topology) -> JobReference:
    """Record a new job, or refuse a topology that does not fit the job that is there; which job it is."""
    known = read_identity(store)
    if known is None:
        refuse_unsafe(store)
        wanted = identity_of(topology, secrets.token_hex(8))
        known = wanted if store.create(paths.JOB, msgspec.json.encode(wanted)) else read_identity(store) or wanted
    refuse_difference(known, identity_of(topology), store.url)
    return JobReference(known.id, known.topology, store.shown_url)


def refuse_difference(known: JobIdentity, wanted: JobIdentity, url: str) -> None:
    """Say the first thing that differs, what is expected and what to do."""
    advice = f"restore the old one, or start a new job with another checkpoint URL than {url}"
    if known.topology != wanted.topology:
        raise IncompatibleJobError(
            f"the topology is called {wanted.topology!r}, but the checkpointed job {known.topology!r}: {advice}"
        )
    if known.key_groups != wanted.key_groups:
        raise IncompatibleJobError(
            f"the topology asks for {wanted.key_groups} key groups, but its checkpoint has {known.key_groups}; "
            f"key groups are fixed for the life of a job: {advice}"
        )
    missing = sorted(set(known.operators) - set(wanted.operators))
    added = sorted(set(wanted.operators) - set(known.operators))
    if missing or added:
        raise IncompatibleJobError(
            f"sources and stateful operators have changed (gone: {', '.join(missing) or 'none'}; new: {', '.join(added) or 'none'}); "
            f"expected the same names: {advice}"
        )
    for name, signature in known.operators.items():
        if signature != wanted.operators[name]:
            raise IncompatibleJobError(f"operator {name!r} was {signature} and is now {wanted.operators[name]}: {advice}")
        if known.tables.get(name) != wanted.tables.get(name):
            raise IncompatibleJobError(
                f"operator {name!r} has another state schema: {wanted.tables.get(name)}; its checkpoint has {known.tables.get(name)}: {advice}"
            )
    if known.hash_fingerprint != wanted.hash_fingerprint:
        raise IncompatibleJobError(
            "keys hash differently than when the job began (another version of Polars?); expected the version that began it: "
            f"install that one, or start a new job with another checkpoint URL than {url}"
        )
