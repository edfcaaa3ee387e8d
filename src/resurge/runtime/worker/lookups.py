"""Versions of lookup tables: taken once, kept durably, and held in memory by every worker process."""

import threading
from collections import OrderedDict
from dataclasses import replace

import polars as pl

from resurge.errors import JobError
from resurge.model.operator import Operator
from resurge.operators.base import EpochContext, Outcome
from resurge.operators.lookup import LookupJoin
from resurge.runtime.worker.outcomes import OutcomeId, decided
from resurge.storage.durable import DurableStore

MOST_HELD = 8
_held: OrderedDict[tuple[str | None, str, int], pl.DataFrame] = OrderedDict()
_lock = threading.Lock()


def with_lookup(context: EpochContext, operator: Operator, durable_url: str | None) -> EpochContext:
    """The context with the table of a lookup join; that of any other operator as it is."""
    if not isinstance(operator, LookupJoin):
        return context
    return replace(context, lookup=lambda: version(durable_url, operator, context.epoch))


def version(durable_url: str | None, operator: LookupJoin, epoch: int) -> pl.DataFrame:
    """The table as an epoch sees it. The first task that needs a version takes it; all others read what that one kept."""
    last = operator.last_epoch(epoch)
    key = (durable_url, operator.name, last)
    with _lock:
        if key not in _held:
            _held[key] = _kept(durable_url, operator, last)
            while len(_held) > MOST_HELD:
                _held.popitem(last=False)
        return _held[key]


def _kept(durable_url: str | None, operator: LookupJoin, last_epoch: int) -> pl.DataFrame:
    if durable_url is None:
        return _read(operator)
    # Under the name of the last epoch that sees it, it is forgotten when no epoch that sees it can be run again.
    identity = OutcomeId(operator.name, 0, last_epoch, 0)
    return decided(DurableStore(durable_url), identity, lambda: Outcome(_read(operator))).output


def _read(operator: LookupJoin) -> pl.DataFrame:
    found: pl.DataFrame = operator.table.read()
    several = found.filter(found.select(operator.on).is_duplicated())
    if several.height:
        key = ", ".join(f"{name} {several[name][0]!r}" for name in operator.on)
        raise JobError(f"lookup {operator.name!r}: its table has several rows for {key}; expected at most one")
    return found
