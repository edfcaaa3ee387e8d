"""Steps of catching up in virtual time: beside live epochs, between two, or within one, as a real driver takes them."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import simpy

from resurge.model.names import NodeId, Partition
from resurge.protocols import recovery
from resurge.protocols.catch_up import (
    LEAST_EPOCHS_PER_STEP,
    MOST_EPOCHS_PER_STEP,
    CatchUp,
    epochs_aloft,
    epochs_beside,
    epochs_per_step,
    has_room,
    is_pressing,
    load,
    nearly_there,
    next_step,
    patience_s,
    smoothed_overhead_s,
)
from resurge.protocols.recovery import Facts, Phase
from resurge.simulator.journal import Commit
from resurge.simulator.world import Job, Shown, Task

if TYPE_CHECKING:
    from resurge.simulator.driver import Driver

LAST_EPOCH = 2**62
Steps = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True)
class KnownShadow:
    """Where a shadow is, and what it has taken."""

    node: NodeId
    cursor: int


@dataclass
class Flight:
    """A step that runs while live epochs go on: what was decided, from which facts, and when it ended, if it did."""

    step: CatchUp
    before: Facts
    job: Job
    started_s: float
    restore_s: float
    ended_s: float | None = None

    def is_void(self, facts: Facts) -> bool:
        """Whether a partition of the step, or a node, has been lost meanwhile."""
        moved = any(facts.standing[partition] != self.before.standing[partition] for partition in self.step.partitions)
        return moved or not self.job.nodes <= facts.capacity.keys()


class CatchingUp:
    """Lets the partitions that are behind take past epochs."""

    def __init__(self, driver: "Driver") -> None:
        self.driver = driver
        self.overhead_s = driver.timing.job_overhead_s
        self.taken = 0
        self.flight: Flight | None = None
        self.is_losing = False

    def step(self, budget_s: float | None = None) -> Steps:
        """One bounded step for the partitions that are behind; False if there is no time for one now, or one is under way."""
        began_s = self.driver.env.now
        taken: list[CatchUp] = []
        is_urgent = budget_s is None or is_pressing(self.driver.facts)
        if self.flight is not None:
            while is_urgent and self.flight.ended_s is None:
                yield self.driver.env.timeout(self.driver.timing.poll_s)
            return self.land()
        if self.next() is None:
            self.driver.stand(recovery.advanced(self.driver.facts, {}))
            return True
        if self._flies() and budget_s is not None and not is_urgent:
            self._launch(budget_s)
            return False

        def work() -> Job | None:
            step = self._next_step(budget_s)
            taken[:] = [step] if step else []
            return self.job(step) if step else None

        job: Job | None = yield from self.driver.attempt(work)
        if job is None:
            return False
        shown = self.driver.world.run(job)
        self.driver.adopt(job)
        self.taken += taken[0].longest
        self.commit(taken[0], shown, self.driver.env.now - began_s)
        return True

    def _flies(self) -> bool:
        """Whether steps run while live epochs go on: where that can be, and as long as it gains on them."""
        return self.driver.options.is_concurrent and not self.is_losing

    def _launch(self, budget_s: float) -> None:
        """Begin a step that runs while live epochs go on, unless the next one can take it as quickly."""
        step = self.next()
        if step is None:
            return
        left = nearly_there(self.driver.facts, step)
        if left and self.overhead_s + left * self._epoch_s(step) > budget_s:
            return
        interval_s = self.driver.timing.interval_s
        more = epochs_aloft(self.driver.facts, step, interval_s, self._patience_s(), interval_s * self.driver.timing.headroom)
        step = self.next(LEAST_EPOCHS_PER_STEP, more) or step
        job = self.job(step)
        took_s, restore_s = self.driver.world.duration_s(job, self.driver.spans_s(job))
        self.flight = Flight(step, self.driver.facts, job, self.driver.env.now, restore_s)
        self.driver.env.process(self._fly(self.flight, took_s))

    def _fly(self, flight: Flight, took_s: float) -> Steps:
        yield self.driver.env.timeout(took_s)
        noticed_s = self.driver.world.first_loss_noticed_s(flight.job.nodes)
        if noticed_s is not None and noticed_s > self.driver.env.now:
            yield self.driver.env.timeout(noticed_s - self.driver.env.now)
        flight.ended_s = self.driver.env.now

    def land(self) -> bool:
        """Take what a step brought that ran meanwhile, if it has ended; False if none has."""
        flight = self.flight
        if flight is None or flight.ended_s is None:
            return False
        self.flight = None
        is_lost = self.driver.world.first_loss_noticed_s(flight.job.nodes) is not None
        if is_lost or flight.is_void(self.driver.facts):
            self.driver.observe()
            return True
        self.is_losing = flight.step.longest <= self.driver.facts.head - flight.before.head
        shown = self.driver.world.run(flight.job)
        self.driver.adopt(flight.job)
        self.driver.restore_s = flight.restore_s
        self.commit(flight.step, shown, flight.ended_s - flight.started_s)
        return True

    def next(self, most_epochs: int = MOST_EPOCHS_PER_STEP, more_epochs: Mapping[Partition, int] | None = None) -> CatchUp | None:
        cursors = {partition: shadow.cursor for partition, shadow in self.driver.shadows.items()}
        return next_step(self.driver.facts, self.driver.buffers.coverage(), cursors, most_epochs, more_epochs)

    def _next_step(self, budget_s: float | None) -> CatchUp | None:
        step = self.next()
        if step is None or budget_s is None or is_pressing(self.driver.facts):
            return step
        least = max(0, LEAST_EPOCHS_PER_STEP - self.taken)
        epochs = epochs_per_step(budget_s + self._patience_s(), self.overhead_s, self._epoch_s(step), least)
        return self.next(epochs) if epochs else None

    def beside(self) -> CatchUp | None:
        """The step that is taken in one job with the next epoch, if one is."""
        step = self.next() if self.flight is None else None
        if step is None:
            return None
        timing, facts, usual_s = self.driver.timing, self.driver.facts, self.driver.pace.took_s
        if is_pressing(facts):
            # Hardly anybody waits for the epoch, so that a step which brings somebody to the head always fits.
            return step if facts.head in step.cursors().values() else None
        if self._flies():
            left = nearly_there(facts, step)
            return self.next(left) if left else None
        if has_room(timing.interval_s, usual_s, self.overhead_s, self._epoch_s(step)):
            return None
        epochs = epochs_beside(facts, step, self._patience_s() / (timing.interval_s * timing.headroom))
        return self.next(epochs) if epochs else None

    def _patience_s(self) -> float:
        return patience_s(self.driver.timing.interval_s, self.driver.pace.took_s)

    def _epoch_s(self, step: CatchUp) -> float:
        return load(self.driver.facts, step) * self.driver.timing.interval_s * self.driver.timing.headroom

    def job(self, step: CatchUp) -> Job:
        """The partitions that catch up and the shadows that feed them; buffers feed what shadows do not."""
        facts = self.driver.facts
        after = recovery.advanced(facts, step.cursors())
        order = sorted(facts.capacity)
        tasks = [
            self.driver.task(partition, LAST_EPOCH if after.standing[partition].phase is Phase.LIVE else taken[-1])
            for partition, taken in step.partitions.items()
        ]
        for index, (partition, taken) in enumerate(sorted(step.shadows.items())):
            # A shadow runs beside its partition, so that one route serves both where both are in one job.
            shadow = self.driver.shadows.get(partition) if partition in step.shadows_kept else None
            node = facts.standing[partition].node or (shadow.node if shadow else order[index % len(order)])
            if shadow is not None and shadow.node != node:
                shadow = None
            cursor = shadow.cursor if shadow else facts.checkpoint
            tasks.append(Task(partition, node, cursor, taken[-1], LAST_EPOCH, True, shadow is None))
        senders = [facts.standing[above].node for above, _ in step.buffered]
        nodes = frozenset(node for node in (*(task.node for task in tasks), *senders) if node is not None)
        return Job(tuple(step.epochs), tuple(tasks), nodes, step.buffered, self.driver.buffered(after))

    def commit(self, step: CatchUp, shown: Shown, took_s: float, *, is_midway: bool = False) -> None:
        before = self.driver.facts
        if not is_midway:
            self.overhead_s = smoothed_overhead_s(self.overhead_s, took_s, step, self._epoch_s(step))
        cursors = step.cursors()
        if shown.parts:
            self.driver.journal.commit(Commit(step.epochs[-1], cursors, shown.parts))
            self.driver.world.sink.show(shown.parts)
        after = recovery.advanced(before, cursors)
        if is_midway:
            # The nodes have taken the live epoch too; facts and nodes agree when that is committed.
            self.driver.facts = after
        else:
            self.driver.stand(after)
        if not self.driver.catching_up():
            self.driver.shadows.clear()
            self.driver.world.shadows.clear()
            self.is_losing = False
        self.driver.story.catch_up(
            self.driver.env.now, took_s, step, before, self.driver.facts, restore_s=self.driver.restore_s, is_joined=is_midway
        )
        self.driver.story.changed(self.driver.env.now, before, self.driver.facts)
