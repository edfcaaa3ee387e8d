"""Run a scenario by a seed: faults strike, a driver recovers, checkers watch; the same seed gives the same run."""

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from resurge.errors import ResurgeError
from resurge.model.names import NodeId
from resurge.protocols.recovery import Facts
from resurge.scheduling import Strategy
from resurge.simulator.checkers import check_end
from resurge.simulator.driver import Driver, DriverOptions
from resurge.simulator.faults import Arrive, Choice, Fault, Kill, KillInScene, KillNamed, Moment, RestartDriver
from resurge.simulator.journal import Journal
from resurge.simulator.scenarios import SCENARIOS, Scenario
from resurge.simulator.story import Story
from resurge.simulator.world import World
from resurge.staging import victims
from resurge.telemetry.events import Event
from resurge.telemetry.log import TelemetryLog

ALGORITHM = "greedy"
"""The planner of simulated runs: it does not look at the clock, so that runs repeat exactly."""

PATIENCE_S = 6.0


@dataclass(frozen=True)
class Outcome:
    """What came of a run: its telemetry, and the promise that was broken, if one was."""

    scenario: Scenario
    seed: int
    strategy: str
    events: list[Event]
    facts: Facts
    broken: str | None = None


def simulate(
    scenario: Scenario | str,
    seed: int,
    strategy: str = "incremental",
    *,
    algorithm: str = ALGORITHM,
    telemetry: TelemetryLog | None = None,
    is_checked: bool = True,
) -> Outcome:
    """Run a scenario, given or named, to its end; a broken promise ends it early and is told in the outcome.

    >>> outcome = simulate("eight-of-ten", seed=1)
    >>> outcome.broken is None, outcome.facts.is_whole
    (True, True)
    """
    rng = random.Random(seed)
    chosen = SCENARIOS[scenario](rng) if isinstance(scenario, str) else scenario
    log = telemetry or TelemetryLog()
    events: list[Event] = []
    log.listeners.append(events.append)
    run = _Run(
        chosen,
        Strategy(strategy, algorithm, correlated_from=chosen.correlated_from, overfills_at_last=chosen.overfills_at_last),
        rng,
        log,
        is_checked=is_checked,
    )
    broken = None
    try:
        run.to_the_end()
    except ResurgeError as error:
        broken = f"at {run.env.now:.3f} s: {error}"
    return Outcome(chosen, seed, strategy, events, run.driver.facts, broken)


class _Run:
    """One run: the world, its faults, and one driver after another."""

    def __init__(
        self, scenario: Scenario, strategy: Strategy, rng: random.Random, telemetry: TelemetryLog, *, is_checked: bool
    ) -> None:
        self.scenario = scenario
        self.rng = rng
        self.env = simpy.Environment()
        self.world = World(scenario.workload, scenario.timing)
        self.journal = Journal()
        self.story = Story(telemetry, scenario.workload, self.journal)
        self.options = DriverOptions(strategy, scenario.checkpoint_interval, is_checked, scenario.is_concurrent)
        self.labels: dict[str, NodeId] = {}
        self.over_from_s: float | None = None
        self.doomed: list[NodeId] = []
        for index in range(scenario.nodes):
            self._arrive(scenario.labels[index] if index < len(scenario.labels) else f"n{index}", is_warm=True)
        self.driver = self._new_driver()
        self.is_driver_up = True

    def to_the_end(self) -> None:
        """Let everything happen, then check that all came back."""
        self.process = self.env.process(self._drivers())
        self.env.process(self._faults())
        self.env.run(self.process)
        self.story.stopped(self.env.now, self.driver.facts, "")
        if self.scenario.heals:
            check_end(self.driver.facts, self.world)

    # Drivers

    def _new_driver(self) -> Driver:
        return Driver(self.env, self.world, self.journal, self.story, self.options)

    def _drivers(self) -> Generator[simpy.Event, Any, None]:
        while True:
            try:
                yield from self.driver.run(self._is_over)
                return
            except simpy.Interrupt as interrupt:
                self.is_driver_up = False
                self._driver_died(unshown=bool(interrupt.cause))
            yield self.env.timeout(self.scenario.timing.restart_s)
            self.driver, self.is_driver_up = self._new_driver(), True

    def _driver_died(self, *, unshown: bool) -> None:
        self.world.sink.driver_died(is_uncertain=self.journal.driver_died(), unshown=unshown)
        self.world.forget_driver()

    def _is_over(self, driver: Driver) -> bool:
        """A while after the last fault, as soon as all is whole and input does not pile up; or when patience ends."""
        if self.over_from_s is None:
            return False
        waited_s = self.env.now - self.over_from_s
        if waited_s > self.scenario.settle_s:
            return True
        calm_s = self.scenario.timing.interval_s * (2 if self.scenario.heals else 20)
        return waited_s > calm_s and driver.facts.is_whole

    # Faults

    def _faults(self) -> Generator[simpy.Event, Any, None]:
        for fault in self.scenario.schedule.faults:
            if fault.at_s > self.env.now:
                yield self.env.timeout(fault.at_s - self.env.now)
            yield from self._strike(fault)
        yield self.env.timeout(self.scenario.timing.interval_s)
        missing = self.scenario.nodes_that_suffice() - len(self.world.up()) if self.scenario.heals else 0
        for _ in range(max(missing, self.driver.strategy.nodes_wanted - len(self.world.up()) if self.scenario.heals else 0)):
            self._arrive("")
        yield self.env.timeout(self.scenario.timing.warm_up_s + self.scenario.timing.detection_s)
        self.over_from_s = self.env.now

    def _strike(self, fault: Fault) -> Generator[simpy.Event, Any, None]:
        if isinstance(fault, Arrive):
            self._arrive(fault.label)
        elif isinstance(fault, RestartDriver):
            if self.is_driver_up and self.process.is_alive:
                self.is_driver_up = False
                self.process.interrupt(fault.unshown)
        elif isinstance(fault, KillNamed):
            self._kill([self.labels[fault.label]] if fault.label in self.labels else [])
        elif isinstance(fault, KillInScene):
            if not self.doomed:
                # All are chosen at the first kill, so that those of later ones do not depend on what was recovered where.
                self.doomed = victims(self.driver.facts, fault.scene, fault.seed)
            self._kill(self.doomed if fault.turn is None else [self.doomed[fault.turn]])
        else:
            yield from self._until(fault.moment)
            self._kill(self._victims(fault))

    def _until(self, moment: Moment) -> Generator[simpy.Event, Any, None]:
        """Wait for the moment, but not for ever."""
        given_up_s = self.env.now + PATIENCE_S
        while moment is not Moment.AT_ONCE and self.env.now < given_up_s:
            is_it = self.driver.catching_up() if moment is Moment.IN_RECOVERY else self.driver.job_ends_s is not None
            if self.is_driver_up and is_it:
                return
            yield self.env.timeout(self.rng.uniform(0.01, 0.1))

    def _victims(self, fault: Kill) -> list[NodeId]:
        up = self.world.up()
        if fault.choice is Choice.NEWEST:
            return up[-fault.count :]
        if fault.choice is Choice.ONE_DOMAIN and up:
            domain = self.world.nodes[self.rng.choice(up)].domain
            up = [node for node in up if self.world.nodes[node].domain == domain]
        return self.rng.sample(up, min(fault.count, len(up)))

    def _kill(self, nodes: list[NodeId]) -> None:
        if nodes:
            self.story.killed(self.env.now, nodes)
        self.world.kill(self.env.now, nodes)
        self.driver.node_died()

    def _arrive(self, label: str, *, is_warm: bool = False) -> None:
        domain = f"r{len(self.world.nodes) % self.scenario.domains}"
        name = self.world.add(self.env.now, self.scenario.capacity, domain, is_warm=is_warm)
        if label:
            self.labels[label] = name
