"""The functions that Spark runs on the executors. Bytes in, bytes out."""

import functools
import pickle
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from resurge.runtime.worker.executor import executor_id
from resurge.runtime.worker.fitness import own_fitness
from resurge.runtime.worker.level import JobCode, LevelTask
from resurge.runtime.worker.messages import JobPlan, Layout, SlotReport
from resurge.storage.node_store import remove_job

IN_PROCESS_NODE = "driver"
MISPLACED = "Misplaced"
_JOBS_KEPT = 4
_CODE: dict[str, JobCode] = {}
_LAYOUTS: dict[tuple[str, str], Layout] = {}
_plans = msgspec.msgpack.Decoder(JobPlan)
_reports = msgspec.msgpack.Decoder(SlotReport)


class LevelFunction:
    """One level of one job, as Spark calls it: split index and an iterator of bytes in, bytes out.

    At level 0 the input is ignored. At later levels plans and packets alternate, because the located side of the zip has as
    many (empty) elements as the shuffled one. A job with one slot needs no shuffle: its only function runs all levels.
    """

    def __init__(self, plan: bytes, code: Any, job: str, mine: range, levels: int, layout: "SentLayout | None" = None) -> None:
        self.plan = plan
        self.code = code
        self.layout = layout
        self.job = job
        self.mine = mine
        self.levels = levels

    def __call__(self, slot: int, items: Iterable[bytes]) -> Iterator[bytes]:
        began_s = time.monotonic()
        packets = list(items)[1::2] if self.mine.start else list(items)[:0]
        read_s_per_byte = (time.monotonic() - began_s) / max(1, sum(map(len, packets)))
        plan = _decoded(self.plan).with_layout(self.layout.loaded() if self.layout is not None else None)
        wanted = plan.slots[slot].node
        here = executor_id()
        if wanted not in (IN_PROCESS_NODE, here):
            failure = MISPLACED, f"slot {slot} belongs on executor {wanted}, not on {here}"
            report = SlotReport(slot, self.mine.start, failure=failure)
            yield from self._framed(_misplaced(report, plan, packets, self.is_last))
            return
        for level in self.mine:
            task = LevelTask(_loaded(self.job, self.code), plan, slot, level, packets)
            task.read_s_per_byte = read_s_per_byte
            packets = task.run()
        yield from self._framed(packets)

    @property
    def is_last(self) -> bool:
        """Whether this function returns reports instead of packets."""
        return self.mine.stop == self.levels

    def _framed(self, messages: list[bytes]) -> Iterator[bytes]:
        for target, message in enumerate(messages):
            yield from _addressed(message, None if self.is_last else target)


class SentLayout:
    """A layout that was sent once, for all jobs that go on from it: its name, and what Spark has broadcast."""

    def __init__(self, job: str, name: str, content: Any) -> None:
        self.job = job
        self.name = name
        self.content = content

    def loaded(self) -> Layout:
        """The layout, which a process decodes once."""
        place = self.job, self.name
        if place not in _LAYOUTS:
            while len(_LAYOUTS) >= _JOBS_KEPT:
                _LAYOUTS.pop(next(iter(_LAYOUTS)))
            _LAYOUTS[place] = msgspec.msgpack.decode(self.content.value, type=Layout)
        return _LAYOUTS[place]


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
