"""Steps of catching up in virtual time: beside live epochs, between two, or within one, as a real driver takes them."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import simpy

from resurge.model.names import NodeId
from resurge.protocols import recovery
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Facts, Phase
from resurge.protocols.step_choice import EARLY, StepChoice, is_void
from resurge.protocols.tempo import Race, StepCost, Tempo
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
        return is_void(self.step, self.job.nodes, self.before, facts)


class CatchingUp:
    """Lets the partitions that are behind take past epochs."""

    def __init__(self, driver: "Driver") -> None:
        self.driver = driver
        self.cost = StepCost(driver.timing.job_overhead_s)
        self.taken = 0
        self.flights: list[Flight] = []
        self.race = Race()
        self.considered: Facts | None = None
        self.awaited: Facts | None = None

    def choice(self) -> StepChoice:
        """What can be done next, as far as is known now."""
        driver, timing = self.driver, self.driver.timing
        unit_s = timing.interval_s * timing.headroom
        pace = driver.pace
        is_concurrent = driver.options.is_concurrent and not self.race.is_lost
        tempo = Tempo(timing.interval_s, pace.took_s, pace.normal_s, self.cost, unit_s, is_concurrent, self.taken)
        shadows = {partition: shadow.cursor for partition, shadow in driver.shadows.items()}
        under_way = [flight.step for flight in self.flights]
        return StepChoice(driver.facts, driver.buffers.coverage(), shadows, tempo, under_way)

    def is_waited_for(self) -> bool:
        """Whether the next live epoch waits until what is behind has come nearer."""
        if not self.driver.catching_up():
            return False
        choice = self.choice()
        return choice.is_pressing and choice.beside() is None

    def step(self, budget_s: float | None = None) -> Steps:
        """One bounded step for the partitions that are behind; False if there is no time for one now, or some are under way."""
        began_s = self.driver.env.now
        taken: list[CatchUp] = []
        if self.land():
            return True
        if self.flights and self.considered is self.driver.facts and budget_s is not None:
            return False
        choice = self.choice()
        if self.flights and (budget_s is None or choice.is_pressing):
            while any(flight.ended_s is None for flight in self.flights):
                yield self.driver.env.timeout(self.driver.timing.poll_s)
            return self.land()
        if choice.whole is None:
            self.driver.stand(recovery.advanced(self.driver.facts, {}))
            return True
        if budget_s is not None and choice.is_aloft:
            self._launch(choice.aloft(budget_s))
            return (yield from self._wait_for(choice.soon(budget_s), budget_s + 2 * choice.tempo.patience_s))
        if self.flights:
            return False

        def work() -> Job | None:
            step = self.choice().between(budget_s)
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

    def is_early(self, left_s: float) -> bool:
        """Whether the next live epoch begins before it is due; asked once as long as nothing changes."""
        facts = self.driver.facts
        if left_s > EARLY * self.driver.timing.interval_s or self.awaited is facts or not self.driver.catching_up():
            return False
        self.awaited = facts
        return self.choice().is_early(left_s)

    def go_on(self) -> None:
        """Let steps begin with a live epoch."""
        if self.driver.catching_up():
            choice = self.choice()
            if choice.is_aloft:
                self._launch(choice.aloft(0.0))

    def _launch(self, steps: Iterable[CatchUp]) -> None:
        """Begin steps that run while live epochs go on."""
        self.considered = self.driver.facts
        for step in steps:
            job = self.job(step)
            took_s, restore_s = self.driver.world.duration_s(job, self.driver.spans_s(job))
            flight = Flight(step, self.driver.facts, job, self.driver.env.now, restore_s)
            self.flights.append(flight)
            self.race = self.race.begun(step, self.driver.facts)
            self.driver.env.process(self._fly(flight, took_s))

    def _wait_for(self, step: CatchUp | None, longest_s: float) -> Steps:
        """Let a step that will be over soon end before the next live epoch begins; False if there is none, or it takes too long."""
        until_s = self.driver.env.now + longest_s
        awaited = [flight for flight in self.flights if flight.step is step]
        while any(flight.ended_s is None for flight in awaited) and self.driver.env.now < until_s:
            yield self.driver.env.timeout(self.driver.timing.poll_s)
        return bool(awaited) and self.land()

    def _fly(self, flight: Flight, took_s: float) -> Steps:
        yield self.driver.env.timeout(took_s)
        noticed_s = self.driver.world.first_loss_noticed_s(flight.job.nodes)
        if noticed_s is not None and noticed_s > self.driver.env.now:
            yield self.driver.env.timeout(noticed_s - self.driver.env.now)
        flight.ended_s = self.driver.env.now

    def land(self) -> bool:
        """Take what steps brought that ran meanwhile and have ended; False if none has."""
        ended = [flight for flight in self.flights if flight.ended_s is not None]
        for flight in ended:
            self.flights.remove(flight)
            self._land(flight)
        return bool(ended)

    def _land(self, flight: Flight) -> None:
        is_lost = self.driver.world.first_loss_noticed_s(flight.job.nodes) is not None
        if is_lost or flight.is_void(self.driver.facts) or flight.ended_s is None:
            self.driver.observe()
            return
        shown = self.driver.world.run(flight.job)
        self.driver.adopt(flight.job)
        self.driver.restore_s = flight.restore_s
        self.commit(flight.step, shown, flight.ended_s - flight.started_s)

    def beside(self) -> CatchUp | None:
        """The step that is taken in one job with the next epoch, if one is."""
        self.taken = 0
        if not self.driver.catching_up():
            return None
        choice = self.choice()
        if choice.whole is None:
            self.driver.stand(recovery.advanced(self.driver.facts, {}))
        step = choice.beside()
        self.taken = 0 if step is None else step.longest
        return step

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
            self.cost = self.cost.after(took_s, step.longest, self.choice().work_s(step))
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
            self.race = Race()
        self.driver.story.catch_up(
            self.driver.env.now, took_s, step, before, self.driver.facts, restore_s=self.driver.restore_s, is_joined=is_midway
        )
        self.driver.story.committed(self.driver.env.now, self.driver.facts)
