"""Usual epochs: what one costs, and what its job carries, does not depend on the number of partitions."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from resurge.benchmarks.driver import counting
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.testing.inline_runner import InlineRunner

FEW, MANY = 80, 4_000
SETTLED = 6
"""Epochs after which a new job's are usual: everybody is live, and has the version of one attempt."""


class SeenPlans(InlineRunner):
    """Keeps the plans that it ran."""

    def __init__(self) -> None:
        super().__init__(4)
        self.plans: list[JobPlan] = []

    def run(self, plan: JobPlan) -> list[SlotReport]:
        self.plans.append(plan)
        return super().run(plan)


@contextmanager
def settled(folder: Path, partitions: int) -> Iterator[tuple[Engine, SeenPlans]]:
    """A job of so many partitions that has run for some epochs."""
    runner = SeenPlans()
    options = RunOptions(f"{folder}/job", interval_s=0, back_pressure=False, local_root=str(folder), checkpoint_interval=0)
    engine = Engine(counting(partitions), runner, options)
    engine.start()
    for _ in range(SETTLED):
        engine.step()
    yield engine, runner
    engine.close("tested")


def executed(call: Callable[[], Any]) -> Counter[str]:
    """How many lines of Resurge were executed, by function; each pass of a loop counts."""
    lines: Counter[str] = Counter()

    def seen(frame: FrameType, event: str, argument: object) -> Any:
        if "/resurge/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines[f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"] += 1
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def usual_epoch(folder: Path, partitions: int) -> Counter[str]:
    """The lines of an epoch; of several, so that what is done every few seconds does not count."""
    folder.mkdir()
    with settled(folder, partitions) as (engine, _):
        return min((executed(engine.step) for _ in range(3)), key=lambda lines: lines.total())


def test_a_usual_epoch_looks_at_no_partition(tmp_path):
    """Fifty times as many partitions: not one more pass of a loop, on the driver or in its tasks."""
    few, many = usual_epoch(tmp_path / "few", FEW), usual_epoch(tmp_path / "many", MANY)
    more = {name: (few[name], count) for name, count in many.items() if count > 1.5 * few[name] + 10}
    assert few.total() > 1000 and not more


def test_a_usual_job_carries_as_much_whatever_the_number_of_partitions(tmp_path):
    """Epoch, offsets and attempt: the layout is the same value from job to job, and is sent once."""
    sizes = []
    for partitions in (FEW, MANY):
        folder = tmp_path / f"{partitions:06d}"
        folder.mkdir()
        with settled(folder, partitions) as (_, runner):
            *_, before, last = runner.plans
        assert last.layout is not None and last.layout is before.layout
        assert sum(len(cohort.key_groups) for mine in last.layout.cohorts for cohort in mine) == partitions
        sizes.append(len(msgspec.msgpack.encode(last.without_layout())))
    assert sizes[0] == sizes[1]


def test_a_plan_without_its_layout_is_refused(tmp_path):
    """A task that did nothing, because nobody told it what, would lose its key groups' rows."""
    with settled(tmp_path, FEW) as (_, runner), pytest.raises(Exception, match="without a layout"):
        runner.plans[-1].without_layout().of_slot(0)
