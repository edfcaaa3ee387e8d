"""Run a scenario by a seed: faults strike, a driver recovers, checkers watch; the same seed gives the same run."""

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import simpy

from resurge.coordinator.commands import ReleaseNodes, RequestNodes
from resurge.coordinator.inputs import Requested
from resurge.coordinator.scheduling import Strategy
from resurge.coordinator.state import Settings
from resurge.errors import ResurgeError
from resurge.model.names import NodeId
from resurge.protocols.cuts import Cuts
from resurge.protocols.recovery import Phase, RecoveryState
from resurge.simulator.checkers import check_end, check_requests, check_scale, is_overloaded
from resurge.simulator.driver import Driver, DriverOptions
from resurge.simulator.faults import (
    Arrive,
    Ask,
    Choice,
    CutOff,
    FailJobs,
    Fault,
    Kill,
    KillChosen,
    KillNamed,
    Moment,
    RestartDriver,
    Slow,
    StallDriver,
    Wanted,
)
from resurge.simulator.journal import Journal
from resurge.simulator.requests import ask_of
from resurge.simulator.running import Doomed
from resurge.simulator.scenarios import (
    Scenario,
    crowded_scenario,
    elastic_scenario,
    limited_scenario,
    random_scenario,
    scaling_scenario,
)
from resurge.simulator.world import World
from resurge.telemetry.events import Event, JobStopped, NodesKilled
from resurge.telemetry.log import TelemetryLog

ALGORITHM = "greedy"
"""The planner of simulated runs: it does not look at the clock, so that runs repeat exactly."""

LONGEST_WAIT_S = 6.0

Drawn = Literal["random", "elastic", "scaling", "limited", "crowded"]
"""Families of scenarios that are drawn from a seed."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run: its telemetry, and the promise that was broken, if one was."""

    scenario: Scenario
    seed: int
    strategy: str
    events: list[Event]
    recovery: RecoveryState
    broken: str | None = None
    drivers: Sequence[Driver] = ()


def simulate(
    scenario: Scenario | Drawn,
    seed: int,
    strategy: str = "incremental",
    *,
    algorithm: str = ALGORITHM,
    telemetry: TelemetryLog | None = None,
    is_checked: bool = True,
) -> Outcome:
    """Run a scenario, given or drawn from the seed, to its end; a broken promise ends it early and is named in the outcome.

    >>> outcome = simulate("random", seed=1)
    >>> outcome.broken is None, outcome.recovery.all_live
    (True, True)
    """
    rng = random.Random(seed)
    drawn = {
        "random": random_scenario,
        "elastic": elastic_scenario,
        "scaling": scaling_scenario,
        "limited": limited_scenario,
        "crowded": crowded_scenario,
    }
    chosen = drawn[scenario](rng) if isinstance(scenario, str) else scenario
    log = telemetry or TelemetryLog()
    events: list[Event] = []
    log.listeners.append(events.append)
    run = _Simulation(
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
    return Outcome(chosen, seed, strategy, events, run.driver.recovery, broken, run.lives)


class _Simulation:
    """One run: the world, its faults, and one driver after another."""

    def __init__(
        self, scenario: Scenario, strategy: Strategy, rng: random.Random, telemetry: TelemetryLog, *, is_checked: bool
    ) -> None:
        self.scenario = scenario
        self.rng = rng
        # Apart from the faults' own chance, so that what drivers do does not change which nodes die.
        self.chance = random.Random(repr(rng.getstate()))
        self.env = simpy.Environment()
        self.world = World(scenario.workload, scenario.timing)
        self.journal = Journal(Cuts.whole(scenario.workload.graph.upstream, 0))
        self.telemetry = telemetry
        self.options = DriverOptions(_settings(scenario), strategy, is_checked)
        self.labels: dict[str, NodeId] = {}
        self.over_from_s: float | None = None
        self.doomed: list[NodeId] = []
        self.starting = 0
        self.lives: list[Driver] = []
        for index in range(scenario.nodes):
            self._arrive(scenario.labels[index] if index < len(scenario.labels) else f"n{index}", is_warm=True)
        self.driver = self._new_driver()

    def to_the_end(self) -> None:
        """Let everything happen, then check that all came back."""
        self.driver.start()
        self.env.process(self._faults())
        self.env.run(self.env.process(self._watch()))
        recovery = self.driver.recovery
        self.telemetry.write(JobStopped(self.env.now, recovery.head, ""))
        if self.scenario.heals and not (recovery.has_phase(Phase.CATCHING_UP) and is_overloaded(self.driver.state)):
            check_end(recovery, self.world, self.driver.state.gaps)
            check_requests(self.driver.state, self.driver.requests)

    # Drivers

    def _new_driver(self) -> Driver:
        driver = Driver(self.env, self.world, self.journal, self.telemetry, self.options, self.chance)
        driver.scaler = self._scale
        self.lives.append(driver)
        return driver

    def _scale(self, command: RequestNodes | ReleaseNodes) -> None:
        """The cluster manager: machines start after a while, as many as are missing; those that are given back go."""
        check_scale(self.driver.state, command)
        if isinstance(command, ReleaseNodes):
            self._after(0.3, lambda: self._kill(list(command.nodes)))
            return
        missing = command.total - len(self.world.up()) - self.starting
        for _ in range(missing):
            self.starting += 1
            self._after(self.chance.uniform(0.2, 3.0), self._started)

    def _started(self) -> None:
        self.starting -= 1
        self._arrive("")

    def _watch(self) -> Generator[simpy.Event, Any, None]:
        """Until it is over: faults have struck, all is well, and no command waits for its answer."""
        while not self._is_over():
            yield self.env.timeout(self.scenario.timing.poll_s)

    def _is_over(self) -> bool:
        """A while after the last fault, as soon as all is live and input does not pile up; or after the time to settle."""
        if self.over_from_s is None or not self.driver.is_alive:
            return False
        waited_s = self.env.now - self.over_from_s
        if waited_s > self.scenario.settle_s:
            return True
        calm_s = self.scenario.timing.interval_s * (2 if self.scenario.heals else 20)
        state = self.driver.state
        is_settled = not state.open_commands and self.env.now >= self.driver.stalled_until_s
        is_reported = state.emitted.live in (None, state.recovery.live_queries)
        is_still = state.migration is None
        return waited_s > calm_s and state.recovery.all_live and is_settled and is_reported and is_still

    def _restart(self) -> None:
        """Another driver takes over after a while."""
        self.env.timeout(self.scenario.timing.restart_s).callbacks.append(lambda _: self._take_over())

    def _take_over(self) -> None:
        self.world.forget_driver()
        self.driver = self._new_driver()
        self.driver.start()

    # Faults

    def _faults(self) -> Generator[simpy.Event, Any, None]:
        for fault in self.scenario.schedule.faults:
            if fault.at_s > self.env.now:
                yield self.env.timeout(fault.at_s - self.env.now)
            yield from self._strike(fault)
        yield self.env.timeout(self.scenario.timing.interval_s)
        if self.scenario.heals:
            yield from self._heal()
        yield self.env.timeout(self.scenario.timing.warm_up_s + self.scenario.timing.detection_s)
        self.over_from_s = self.env.now

    def _heal(self) -> Generator[simpy.Event, Any, None]:
        """Whatever was cut off, slow or stopped is over; machines come until they suffice."""
        while not self.driver.is_alive or self.env.now < self.driver.stalled_until_s:
            yield self.env.timeout(self.scenario.timing.interval_s)
        self._reconnect([name for name, node in self.world.nodes.items() if node.cut_at_s is not None])
        self._slow(list(self.world.nodes), 1.0)
        wanted = max(self.scenario.nodes_that_suffice(), self.driver.state.strategy.nodes_wanted)
        # What drains, or is asked to, takes nothing.
        drains = (Wanted.DRAIN, Wanted.RELEASE)
        wanted += sum(isinstance(fault, Ask) and fault.wanted in drains for fault in self.scenario.schedule.faults)
        for _ in range(wanted - len(self.world.up())):
            self._arrive("")

    def _strike(self, fault: Fault) -> Generator[simpy.Event, Any, None]:
        if isinstance(fault, Arrive):
            self._arrive(fault.label)
        elif isinstance(fault, Ask):
            self._ask(fault)
        elif isinstance(fault, RestartDriver):
            self._end_driver(fault)
        elif isinstance(fault, StallDriver):
            self._stall_driver(fault)
        elif isinstance(fault, FailJobs):
            self.driver.failing += fault.kinds
        elif isinstance(fault, CutOff):
            self._cut_off(fault)
        elif isinstance(fault, Slow):
            chosen = self._sample(fault.count)
            self._slow(chosen, fault.factor)
            self._after(fault.for_s, lambda: self._slow(chosen, 1.0))
        elif isinstance(fault, KillNamed):
            self._kill([self.labels[fault.label]] if fault.label in self.labels else [])
        elif isinstance(fault, KillChosen):
            if not self.doomed:
                # All are chosen at the first kill, so that those of later ones do not depend on what was recovered where.
                self.doomed = list(fault.choose(self.driver.recovery))
            self._kill(self.doomed if fault.turn is None else [self.doomed[fault.turn]])
        else:
            yield from self._until(fault.moment)
            self._kill(self._victims(fault))

    def _ask(self, fault: Ask) -> None:
        if not self.driver.is_alive:
            return
        requests = self.driver.requests
        asked = ask_of(fault, self.driver.recovery, f"r{len(requests.asked)}")
        requests.asked[asked.request] = asked
        if fault.wanted is Wanted.RELEASE:
            requests.releases[asked.request] = lambda node: self._after(0.5, lambda: self._kill([node]))
        self.driver.deliver(Requested(asked))

    def _end_driver(self, fault: RestartDriver) -> None:
        if not self.driver.is_alive:
            return
        if fault.after_commands is None:
            self.driver.die()
            self._restart()
        else:
            self.driver.doomed = Doomed(fault.after_commands, self._restart)

    def _stall_driver(self, fault: StallDriver) -> None:
        if not self.driver.is_alive:
            return
        self.driver.stall(fault.for_s)
        if fault.is_replaced:
            self.driver.doomed = Doomed()
            self._restart()

    def _cut_off(self, fault: CutOff) -> None:
        chosen = self._sample(fault.count)
        for node in chosen:
            self.world.nodes[node].cut_at_s = self.env.now
        self._after(self.scenario.timing.detection_s, self._look)
        self._after(fault.for_s, lambda: self._reconnect(chosen))

    def _reconnect(self, nodes: list[NodeId]) -> None:
        """Nodes are heard again; those that were declared dead are as good as new, and must become warm."""
        for name in nodes:
            node = self.world.nodes[name]
            if node.cut_at_s is None:
                continue
            is_declared_dead = self.env.now >= node.cut_at_s + self.scenario.timing.detection_s - 1e-9
            node.cut_at_s = None
            if is_declared_dead:
                node.warm_at_s = self.env.now + self.scenario.timing.warm_up_s
                self._after(self.scenario.timing.warm_up_s, self._look)
        self.driver.heal()

    def _slow(self, nodes: list[NodeId], factor: float) -> None:
        for node in nodes:
            self.world.nodes[node].slowness = factor

    def _sample(self, count: int) -> list[NodeId]:
        up = self.world.up()
        return self.rng.sample(up, min(count, len(up)))

    def _until(self, moment: Moment) -> Generator[simpy.Event, Any, None]:
        """Wait for the moment, but not for ever."""
        given_up_s = self.env.now + LONGEST_WAIT_S
        while moment is not Moment.AT_ONCE and self.env.now < given_up_s:
            state = self.driver.state
            is_it = {
                Moment.IN_RECOVERY: state.is_catching_up,
                Moment.IN_A_MOVE: state.migration is not None and bool(state.migration.moves),
            }.get(moment, self.driver.is_in_a_job)
            if self.driver.is_alive and is_it:
                return
            yield self.env.timeout(self.rng.uniform(0.01, 0.1))

    def _victims(self, fault: Kill) -> list[NodeId]:
        up = self.world.up()
        if fault.choice is Choice.NEWEST:
            return up[-fault.count :]
        if fault.choice is Choice.MOVING and (moving := self._moving_nodes()):
            up = moving
        if fault.choice is Choice.ONE_DOMAIN and up:
            domain = self.world.nodes[self.rng.choice(up)].domain
            up = [node for node in up if self.world.nodes[node].domain == domain]
        return self.rng.sample(up, min(fault.count, len(up)))

    def _moving_nodes(self) -> list[NodeId]:
        """The nodes that state moves from and to."""
        migration, statuses = self.driver.state.migration, self.driver.recovery.statuses
        moves = migration.moves if migration is not None else {}
        found = {node for partition, target in moves.items() for node in (statuses[partition].node, target)}
        return [node for node in self.world.up() if node in found]

    def _kill(self, nodes: list[NodeId]) -> None:
        if nodes:
            self.telemetry.write(NodesKilled(self.env.now, sorted(nodes)))
        self.world.kill(self.env.now, nodes)
        self._after(self.scenario.timing.detection_s, self._look)

    def _arrive(self, label: str, *, is_warm: bool = False) -> None:
        domain = f"r{len(self.world.nodes) % self.scenario.domains}"
        name = self.world.add(self.env.now, self.scenario.capacity, domain, is_warm=is_warm)
        if label:
            self.labels[label] = name
        if not is_warm:
            self._after(self.scenario.timing.warm_up_s, self._look)

    def _look(self) -> None:
        self.driver.look()

    def _after(self, wait_s: float, action: Callable[[], None]) -> None:
        self.env.timeout(wait_s).callbacks.append(lambda _: action())


def _settings(scenario: Scenario) -> Settings:
    timing = scenario.timing
    return Settings(
        interval_s=timing.interval_s,
        checkpoint_interval=scenario.checkpoint_interval,
        max_rows_per_epoch=timing.max_rows_per_epoch,
        headroom=timing.headroom,
        is_concurrent=scenario.is_concurrent,
        idle_s=timing.poll_s,
        saves_partially=True,
        balances=scenario.balances,
        scale=scenario.scale,
        most_epochs_kept=scenario.most_epochs_kept,
        gives_up=scenario.most_epochs_kept is not None,
        copying=scenario.copying,
    )
