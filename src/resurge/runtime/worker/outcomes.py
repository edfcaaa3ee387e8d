"""Outcomes of operators that are not deterministic: logged durably before use, so that none is computed twice.

The first attempt at an epoch to log an outcome decides it; every later attempt, replay or shadow reads it.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import polars as pl

from resurge.errors import CorruptFileError
from resurge.operators.base import Outcome
from resurge.operators.sorted_runs import TableDelta
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.frames import from_bytes, to_bytes


class _LoggedDelta(msgspec.Struct):
    upserts: bytes | None
    deletes: bytes | None
    low: int | None


class _LoggedOutcome(msgspec.Struct):
    output: bytes
    changes: dict[str, _LoggedDelta]
    late_rows: int
    late: list[bytes]


@dataclass(frozen=True)
class OutcomeId:
    """What one outcome is of: an operator on one branch of a union, an epoch as it was planned, and a split or key group."""

    operator: str
    branch: int
    epoch: int
    order: int
    plan: int = 0

    @property
    def path(self) -> str:
        """Where the outcome is logged."""
        return paths.outcome(self.operator, self.branch, self.epoch, self.plan, self.order)


@dataclass(frozen=True)
class OutcomeLog:
    """The logged outcomes of one operator on one branch of a union in one epoch: one for each split or key group."""

    store: DurableStore
    operator: str
    branch: int
    epoch: int
    plan: int

    def decided(self, orders: Sequence[int], compute: Callable[[Sequence[int]], Mapping[int, Outcome]]) -> Mapping[int, Outcome]:
        """The outcomes of these splits or key groups: those not logged yet are computed together, and logged each by itself."""
        identities = {order: OutcomeId(self.operator, self.branch, self.epoch, order, self.plan) for order in orders}
        missing = [order for order, identity in identities.items() if not self.store.exists(identity.path)]
        made = compute(missing) if missing else {}
        return {order: _first(self.store, identity, made.get(order)) for order, identity in identities.items()}


def decided(store: DurableStore, identity: OutcomeId, compute: Callable[[], Outcome]) -> Outcome:
    """One outcome: the logged one, or this one, which is logged now."""
    return _first(store, identity, None if store.exists(identity.path) else compute())


def _first(store: DurableStore, identity: OutcomeId, outcome: Outcome | None) -> Outcome:
    """Log an outcome, unless there is none or another attempt has logged one: then take that one."""
    if outcome is not None and store.create(identity.path, _encoded(outcome)):
        return outcome
    return _decoded(store.read(identity.path), store.path(identity.path))


def _encoded(outcome: Outcome) -> bytes:
    changes = {
        name: _LoggedDelta(
            None if delta.upserts is None else bytes(to_bytes(delta.upserts)),
            None if delta.deletes is None else bytes(to_bytes(delta.deletes)),
            delta.low,
        )
        for name, delta in outcome.changes.items()
    }
    late = [bytes(to_bytes(rows)) for rows in outcome.late]
    body = msgspec.msgpack.encode(_LoggedOutcome(bytes(to_bytes(outcome.output)), changes, outcome.late_rows, late))
    return zlib.crc32(body).to_bytes(4, "big") + body


def _decoded(content: bytes, path: str) -> Outcome:
    body = content[4:]
    if zlib.crc32(body).to_bytes(4, "big") != content[:4]:
        raise CorruptFileError(f"{path} does not fit its checksum: the file is torn or was altered; restore it from a copy")
    logged = msgspec.msgpack.decode(body, type=_LoggedOutcome)
    changes = {
        name: TableDelta(_frame(delta.upserts), _frame(delta.deletes), delta.low) for name, delta in logged.changes.items()
    }
    return Outcome(from_bytes(logged.output), changes, logged.late_rows, tuple(from_bytes(rows) for rows in logged.late))


def _frame(content: bytes | None) -> pl.DataFrame | None:
    return None if content is None else from_bytes(content)
