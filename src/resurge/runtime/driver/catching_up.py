"""Steps of catching up as jobs: beside live epochs on a cluster; where jobs run one by one, between two or within one."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from resurge.connectors.contracts import StagedPart
from resurge.errors import EngineError
from resurge.model.names import NodeId
from resurge.protocols import recovery
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.recovery import Facts, Phase
from resurge.protocols.step_choice import EARLY, StepChoice, is_void
from resurge.protocols.tempo import Race, StepCost, Tempo
from resurge.runtime.driver.failures import raise_failures
from resurge.runtime.driver.job_plans import Work, buffered_groups, catch_up_work, joined, live_work
from resurge.runtime.driver.outputs import without_rows
from resurge.runtime.driver.runner import NodesLostError, Runner
from resurge.runtime.driver.story import Took
from resurge.runtime.worker.messages import EpochWork, JobPlan, SlotReport
from resurge.storage.journal import CatchUpCommitted

if TYPE_CHECKING:
    from resurge.runtime.driver.engine import Engine


@dataclass
class Flight:
    """A step that runs while live epochs go on: what was decided, where its partitions stood then, and what came of it."""

    step: CatchUp
    before: Facts
    plan: JobPlan
    chosen: Work
    started: float = field(default_factory=time.monotonic)
    took_s: float = 0.0
    reports: list[SlotReport] | None = None
    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self, runner: Runner) -> None:
        """Run the job; whatever comes of it is looked at by the thread that decides."""
        try:
            self.reports = runner.run(self.plan)
        except Exception as error:
            # Whatever it is, it must not be lost with this thread, nor may anybody wait for it for ever.
            self.error = error
        self.took_s = time.monotonic() - self.started
        self.ended.set()

    def is_void(self, facts: Facts) -> bool:
        """Whether a partition of the step, or a node, has been lost meanwhile."""
        return is_void(self.step, {NodeId(slot.node) for slot in self.plan.slots}, self.before, facts)


@dataclass
class CatchingUp:
    """Lets the partitions that are behind take past epochs."""

    engine: "Engine"
    cost: StepCost | None = None
    replays: int = 0
    taken: int = 0
    flights: list[Flight] = field(default_factory=list)
    race: Race = field(default_factory=Race)
    considered: Facts | None = None
    awaited: Facts | None = None

    def choice(self) -> StepChoice:
        """What can be done next, as far as is known now."""
        engine, options = self.engine, self.engine.options
        cost = self.cost or StepCost(engine.attempt_s / 2)
        unit_s = options.interval_s * options.headroom
        pace = engine.pace
        is_concurrent = engine.runner.is_concurrent and not self.race.is_lost
        tempo = Tempo(options.interval_s, pace.took_s, pace.normal_s, cost, unit_s, is_concurrent, self.taken)
        shadows = {partition: version.cursor for partition, version in engine.versions.shadows.items()}
        facts, coverage = engine.membership.with_costs(engine.facts), engine.versions.coverage()
        return StepChoice(facts, coverage, shadows, tempo, [flight.step for flight in self.flights])

    def is_waited_for(self) -> bool:
        """Whether the next live epoch waits until what is behind has come nearer."""
        if not self.engine.catching_up() or self.engine.stopping.is_set():
            return False
        choice = self.choice()
        return choice.is_pressing and choice.beside() is None

    def step(self, budget_s: float | None = None) -> bool:
        """One bounded step, in a job of its own; False if there is no time for one, or if some are under way."""
        engine, started = self.engine, time.monotonic()
        taken: list[CatchUp] = []
        if self.land():
            return True
        if self.flights and self.considered is engine.facts and budget_s is not None:
            return False
        choice = self.choice()
        if self.flights and (budget_s is None or choice.is_pressing):
            return self.land(wait=True)
        if choice.whole is None:
            engine.facts = recovery.advanced(engine.facts, {})
            return True
        if budget_s is not None and choice.is_aloft:
            self._launch(choice.aloft(budget_s))
            return self._wait_for(choice.soon(budget_s), budget_s + 2 * choice.tempo.patience_s)
        if self.flights or choice.between(budget_s) is None:
            return False

        def work() -> Work:
            taken.clear()
            step = self.choice().between(budget_s)
            if step is None:
                return Work(engine.facts.head, [], [], {}, {}, {})
            taken.append(step)
            return self._work(step)

        reports = engine.attempt(work)
        if taken:
            took_s = time.monotonic() - started
            self.taken += taken[0].longest
            self._commit(taken[0], reports, took_s, self.replays)
        return True

    def _commit(self, step: CatchUp, reports: list[SlotReport], took_s: float, replays: int) -> None:
        choice = self.choice()
        self.cost = choice.tempo.cost.after(took_s, step.longest, choice.work_s(step))
        parts = [part for report in reports for part in report.parts]
        self.commit(step, parts, Took(took_s, restore_s(reports), replays, is_joined=False))

    def is_early(self, left_s: float) -> bool:
        """Whether the next live epoch begins before it is due; asked once as long as nothing changes."""
        facts = self.engine.facts
        if left_s > EARLY * self.engine.options.interval_s or self.awaited is facts or not self.engine.catching_up():
            return False
        self.awaited = facts
        return self.choice().is_early(left_s)

    def go_on(self) -> None:
        """Let steps begin with a live epoch."""
        if self.engine.catching_up():
            choice = self.choice()
            if choice.is_aloft:
                self._launch(choice.aloft(0.0))

    def _launch(self, steps: Iterable[CatchUp]) -> None:
        """Begin steps that run while live epochs go on."""
        engine = self.engine
        self.considered = engine.facts
        for step in steps:
            chosen = self._work(step)
            flight = Flight(step, engine.facts, engine.planned(chosen, {}), chosen)
            self.flights.append(flight)
            self.race = self.race.begun(step, engine.facts)
            threading.Thread(target=flight.run, args=(engine.runner,), daemon=True).start()

    def _wait_for(self, step: CatchUp | None, longest_s: float) -> bool:
        """Let a step that will be over soon end before the next live epoch begins; False if there is none, or it takes too long."""
        awaited = [flight for flight in self.flights if flight.step is step]
        for flight in awaited:
            flight.ended.wait(longest_s)
        return bool(awaited) and self.land()

    def buffers_in_use(self) -> set[str]:
        """The files that steps under way may still read."""
        replays = (replay for flight in self.flights for mine in flight.chosen.replays.values() for replay in mine)
        return {replay.file for replay in replays}

    def wait(self, longest_s: float) -> None:
        """Let steps that are under way end, but not for ever; nothing of them is used."""
        deadline = time.monotonic() + longest_s
        for flight in self.flights:
            flight.ended.wait(max(0.0, deadline - time.monotonic()))

    def land(self, *, wait: bool = False) -> bool:
        """Take what steps brought that ran meanwhile and have ended; False if none has."""
        ended = [flight for flight in self.flights if wait or flight.ended.is_set()]
        for flight in ended:
            flight.ended.wait()
            self.flights.remove(flight)
            self._land(flight)
        return bool(ended)

    def _land(self, flight: Flight) -> None:
        engine = self.engine
        failed = [report.failure for report in flight.reports or () if report.failure is not None]
        if flight.error is not None or failed or flight.is_void(engine.facts):
            engine.outputs.discard(flight.reports or ())
            engine.versions.abandoned(flight.plan, engine.facts.capacity)
            engine.observe()
            try:
                if isinstance(flight.error, EngineError) or not flight.is_void(engine.facts):
                    raise_failures(flight.reports or ())
                    if flight.error is not None and not isinstance(flight.error, NodesLostError):
                        raise flight.error
            except EngineError as error:
                engine.try_again(error)
            return
        reports = flight.reports or []
        engine.adopt(flight.plan, flight.chosen, reports)
        self._commit(flight.step, reports, flight.took_s, sum(map(len, flight.chosen.replays.values())))

    def live_work(self, epoch: EpochWork, checkpoint: bool) -> tuple[Work, CatchUp | None]:
        """The work of a live epoch, and the step that is taken in the same job."""
        engine = self.engine
        step = self._beside() if engine.catching_up() else None
        self.taken = 0 if step is None else step.longest
        splits = engine.ledger.splits(epoch.epoch)
        after = self._after(step)
        live = live_work(engine.facts, after, engine.versions, epoch, splits, checkpoint)
        chosen = live if step is None else joined(self._work(step), live)
        return replace(chosen, buffered=self._buffered(after), nodes=self._undisturbed(chosen)), step

    def _beside(self) -> CatchUp | None:
        """The step that is taken in one job with the next epoch; what has nothing left to take is live."""
        choice = self.choice()
        if choice.whole is None:
            self.engine.facts = recovery.advanced(self.engine.facts, {})
        return choice.beside()

    def _undisturbed(self, live: Work) -> frozenset[NodeId] | None:
        """The nodes of a live epoch: not those whose cores are taken by a step that is under way, unless they are needed."""
        if not self.flights:
            return None
        taken = {node for flight in self.flights for node in flight.chosen.partitions}
        return frozenset(self.engine.facts.capacity) - (taken - live.partitions.keys())

    def _buffered(self, after: Facts) -> dict[int, list[int]]:
        return buffered_groups(after, self.engine.program, always=self.engine.options.always_buffers)

    def _after(self, step: CatchUp | None) -> Facts:
        """The facts once a step is done, which decide for whom output is buffered."""
        return self.engine.facts if step is None else recovery.advanced(self.engine.facts, step.cursors())

    def _work(self, step: CatchUp) -> Work:
        engine = self.engine
        read = self._read_again(step)
        inputs = [(engine.ledger.work(epoch), engine.ledger.splits(epoch) if epoch in read else []) for epoch in step.epochs]
        after = self._after(step)
        chosen = catch_up_work(engine.facts, after, engine.versions, step, inputs)
        self.replays = sum(map(len, chosen.replays.values()))
        return replace(chosen, buffered=self._buffered(after))

    def _read_again(self, step: CatchUp) -> set[int]:
        """The epochs whose input somebody needs: not those who only follow others, nor queries of the sources that have it."""
        program, shown = self.engine.program, self.engine.ledger.shown_by_sources
        fed = {operator for operator in program.partitioned_operators() if program.reads_sources(operator)}
        taken = [*step.partitions.items(), *step.shadows.items()]
        again = {epoch for partition, epochs in taken if partition.operator in fed for epoch in epochs}
        return again | {epoch for epoch in step.epochs if epoch > shown}

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
            rows = engine.outputs.kept(parts, engine.journal)
            engine.journal.append(CatchUpCommitted(last, named, without_rows(parts), rows))
            engine.outputs.show(parts)
        engine.ledger.shown_by_sources = max(engine.ledger.shown_by_sources, last)
        engine.facts = recovery.advanced(before, cursors)
        engine.story.before = before
        if not engine.facts.of_phase(Phase.CATCHING_UP):
            engine.versions.shadows.clear()
            self.race = Race()
        engine.story.committed(engine.facts)
        engine.story.catch_up(engine, step, parts, took)


def restore_s(reports: Iterable[SlotReport]) -> float:
    """How long the slowest slot of each level read checkpoints."""
    slowest: dict[int, float] = {}
    for report in reports:
        slowest[report.level] = max(slowest.get(report.level, 0.0), report.restore_s)
    return sum(slowest.values())
