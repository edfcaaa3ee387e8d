"""Steps of catching up as jobs: together with a live epoch where nodes have time beside it, else alone between two."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resurge.connectors.contracts import StagedPart
from resurge.protocols import recovery
from resurge.protocols.catch_up import (
    LEAST_EPOCHS_PER_STEP,
    MOST_EPOCHS_PER_STEP,
    CatchUp,
    epochs_beside,
    epochs_per_step,
    has_room,
    load,
    next_step,
    spare,
)
from resurge.protocols.recovery import Facts, Phase
from resurge.runtime.driver.job_plans import Work, catch_up_work, joined, live_work
from resurge.runtime.driver.outputs import without_rows
from resurge.runtime.driver.story import Took
from resurge.runtime.storage.journal import CatchUpCommitted
from resurge.runtime.worker.messages import EpochWork, SlotReport

if TYPE_CHECKING:
    from resurge.runtime.driver.engine import Engine

_WEIGHT_OF_NEWEST = 0.5


@dataclass
class CatchingUp:
    """Lets the partitions that are behind take past epochs."""

    engine: "Engine"
    overhead_s: float | None = None
    replays: int = 0
    taken: int = 0

    def step(self, budget_s: float | None = None) -> bool:
        """One bounded step, in a job of its own; False if there is no time for one and the live epochs carry enough."""
        engine, started = self.engine, time.monotonic()
        taken: list[CatchUp] = []
        if self._next() is None:
            engine.facts = recovery.advanced(engine.facts, {})
            return True
        if self._bounded(budget_s) is None:
            return False

        def work() -> Work:
            taken.clear()
            step = self._bounded(budget_s)
            if step is None:
                return Work(engine.facts.head, [], [], {}, {}, {})
            taken.append(step)
            return self._work(step)

        reports = engine.attempt(work)
        if taken:
            took_s = time.monotonic() - started
            self._learn(taken[0], took_s)
            self.taken += taken[0].longest
            parts = [part for report in reports for part in report.parts]
            self.commit(taken[0], parts, Took(took_s, restore_s(reports), self.replays, is_joined=False))
        return True

    def beside(self) -> CatchUp | None:
        """The step that is taken in one job with the next epoch, if one is."""
        step = self._next()
        if step is None:
            return None
        engine, options = self.engine, self.engine.options
        facts = engine.membership.with_costs(engine.facts)
        if not facts.live_queries():
            # Nobody waits for the epoch, so that a step which brings somebody to the head always fits.
            return step if facts.head in step.cursors().values() else None
        if has_room(options.interval_s, engine.pace.took_s, self._overhead_s(), self._epoch_s(step)):
            return None
        epochs = epochs_beside(facts, step, spare(options.interval_s, engine.pace.took_s, options.headroom))
        return self._next(epochs) if epochs else None

    def live_work(self, epoch: EpochWork, checkpoint: bool) -> tuple[Work, CatchUp | None]:
        """The work of a live epoch, and the step that is taken in the same job."""
        engine = self.engine
        if engine.catching_up() and self._next() is None:
            engine.facts = recovery.advanced(engine.facts, {})
        step = self.beside()
        self.taken = 0 if step is None else step.longest
        splits = engine.ledger.splits(epoch.epoch)
        live = live_work(engine.facts, self._after(step), engine.versions, engine.program, epoch, splits, checkpoint)
        return (live, None) if step is None else (joined(self._work(step), live), step)

    def _after(self, step: CatchUp | None) -> Facts:
        """The facts once a step is done, which decide for whom output is buffered."""
        return self.engine.facts if step is None else recovery.advanced(self.engine.facts, step.cursors())

    def _next(self, most_epochs: int = MOST_EPOCHS_PER_STEP) -> CatchUp | None:
        versions = self.engine.versions
        shadows = {partition: version.cursor for partition, version in versions.shadows.items()}
        return next_step(self.engine.facts, versions.coverage(), shadows, most_epochs)

    def _bounded(self, budget_s: float | None) -> CatchUp | None:
        step = self._next()
        if step is None or budget_s is None or not self.engine.facts.live_queries():
            return step
        least = max(0, LEAST_EPOCHS_PER_STEP - self.taken)
        epochs = epochs_per_step(budget_s, self._overhead_s(), self._epoch_s(step), least)
        return self._next(epochs) if epochs else None

    def _overhead_s(self) -> float:
        return self.engine.attempt_s / 2 if self.overhead_s is None else self.overhead_s

    def _epoch_s(self, step: CatchUp) -> float:
        engine = self.engine
        seconds = engine.options.interval_s * engine.options.headroom
        return seconds * load(engine.membership.with_costs(engine.facts), step)

    def _learn(self, step: CatchUp, took_s: float) -> None:
        """What a step takes beside the work that its partitions are known to cost."""
        newest = max(0.0, took_s - step.longest * self._epoch_s(step))
        known = newest if self.overhead_s is None else self.overhead_s
        self.overhead_s = (1 - _WEIGHT_OF_NEWEST) * known + _WEIGHT_OF_NEWEST * newest

    def _work(self, step: CatchUp) -> Work:
        engine = self.engine
        inputs = [(engine.ledger.work(epoch), engine.ledger.splits(epoch)) for epoch in step.epochs]
        chosen = catch_up_work(engine.facts, self._after(step), engine.versions, engine.program, step, inputs)
        self.replays = sum(map(len, chosen.replays.values()))
        return chosen

    def commit_joined(self, step: CatchUp, reports: list[SlotReport], epoch: int, took_s: float) -> None:
        """The part of a live epoch's job that was a step of catching up."""
        earlier = [part for report in reports for part in report.parts if part.epoch < epoch]
        self.commit(step, earlier, Took(took_s, restore_s(reports), self.replays, is_joined=True))

    def commit(self, step: CatchUp, parts: list[StagedPart], took: Took) -> None:
        """Log and show what a step made; what has met the head is live."""
        engine = self.engine
        before = engine.facts
        cursors, last = step.cursors(), step.epochs[-1]
        if parts:
            named = {str(partition): cursor for partition, cursor in cursors.items()}
            engine.journal.append(CatchUpCommitted(last, named, without_rows(parts)))
            engine.outputs.show(parts)
        engine.ledger.shown_by_sources = max(engine.ledger.shown_by_sources, last)
        engine.facts = recovery.advanced(before, cursors)
        engine.story.before = before
        if not engine.facts.of_phase(Phase.CATCHING_UP):
            engine.versions.shadows.clear()
        engine.story.changed(before, engine.facts)
        engine.story.catch_up(engine, step, took)


def restore_s(reports: Iterable[SlotReport]) -> float:
    """How long the slowest slot of each level read checkpoints."""
    slowest: dict[int, float] = {}
    for report in reports:
        slowest[report.level] = max(slowest.get(report.level, 0.0), report.restore_s)
    return sum(slowest.values())
