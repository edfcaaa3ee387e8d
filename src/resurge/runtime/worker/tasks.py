"""The functions that Spark runs on the executors. Bytes in, bytes out."""

import functools
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from resurge.runtime.worker.executor import executor_id
from resurge.runtime.worker.fitness import own_fitness
from resurge.runtime.worker.level import JobCode, LevelTask
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.storage.node_store import remove_job

IN_PROCESS_NODE = "driver"
MISPLACED = "Misplaced"
_JOBS_KEPT = 4
_CODE: dict[str, JobCode] = {}
_plans = msgspec.msgpack.Decoder(JobPlan)
_reports = msgspec.msgpack.Decoder(SlotReport)


class LevelFunction:
    """One level of one job, as Spark calls it: split index and an iterator of bytes in, bytes out.

    At level 0 the input is ignored. At later levels plans and packets alternate, because the located side of the zip has as
    many (empty) elements as the shuffled one.
    """

    def __init__(self, plan: bytes, code: Any, job: str, level: int, levels: int) -> None:
        self.plan = plan
        self.code = code
        self.job = job
        self.level = level
        self.levels = levels

    def __call__(self, slot: int, items: Iterable[bytes]) -> Iterator[bytes]:
        packets = list(items)[1::2] if self.level else list(items)[:0]
        plan = _decoded(self.plan)
        wanted = plan.slots[slot].node
        here = executor_id()
        if wanted not in (IN_PROCESS_NODE, here):
            report = SlotReport(slot, self.level, failure=(MISPLACED, f"slot {slot} belongs on executor {wanted}, not on {here}"))
            yield from self._framed(_misplaced(report, plan, packets, self.is_last))
            return
        yield from self._framed(LevelTask(_loaded(self.job, self.code), plan, slot, self.level, packets).run())

    @property
    def is_last(self) -> bool:
        """Whether this level returns reports instead of packets."""
        return self.level == self.levels - 1

    def _framed(self, messages: list[bytes]) -> Iterator[bytes]:
        for target, message in enumerate(messages):
            yield from _addressed(message, None if self.is_last else target)


@functools.lru_cache(maxsize=2)
def _decoded(content: bytes) -> JobPlan:
    """A plan; the levels of a job, which have the same, decode it once in a process."""
    return _plans.decode(content)


def _addressed(message: bytes, target: int | None) -> Iterator[bytes]:
    """A message for a slot of the next level, as a pair for Spark's shuffle; or for the driver, with its length before it."""
    if target is None:
        yield len(message).to_bytes(4, "big") + message
    else:
        yield target.to_bytes(8, "big")
        yield message


def _loaded(job: str, code: Any) -> JobCode:
    """A job's code, which a process loads once."""
    if job not in _CODE:
        while len(_CODE) >= _JOBS_KEPT:
            _CODE.pop(next(iter(_CODE)))
        _CODE[job] = pickle.loads(code.value)
    return _CODE[job]


def _misplaced(report: SlotReport, plan: JobPlan, packets: list[bytes], is_last: bool) -> list[bytes]:
    from resurge.runtime.worker.packets import Inbox, PacketWriter

    inbox = Inbox(packets)
    reports = [*inbox.reports, msgspec.msgpack.encode(report)]
    if is_last:
        return reports
    return [PacketWriter().finish(report.slot, {}, reports if target == 0 else []) for target in range(len(plan.slots))]


class WarmUp:
    """A task that loads all that tasks need (this module, the job's code, a little of Polars) and reports what its node has."""

    def __init__(self, code: Any, job: str, *, is_last: bool) -> None:
        self.code = code
        self.job = job
        self.is_last = is_last

    def __call__(self, slot: int, items: Iterable[bytes]) -> Iterator[bytes]:
        import polars as pl

        # A task that leaves input unread would lose its worker, and with it what was warmed.
        list(items)
        if self.code is not None:
            _loaded(self.job, self.code)
        pl.DataFrame({"key": ["a", "b"], "value": [1, 2]}).group_by("key").agg(pl.col("value").sum())
        yield from _addressed(msgspec.json.encode(own_fitness()), None if self.is_last else 0)


class RemoveStore:
    """A task that removes what jobs kept on its node's machine."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = list(folders)

    def __call__(self, slot: int, items: Iterable[bytes]) -> Iterator[bytes]:
        list(items)
        for folder in self.folders:
            remove_job(folder)
        yield from _addressed(b"", None)


def decode_reports(messages: Iterable[bytes]) -> list[SlotReport]:
    """The reports in a job's result."""
    return [_reports.decode(message) for message in messages]
