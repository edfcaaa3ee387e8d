"""Thousands of failure schedules against the real protocols, strategies and planners, in virtual time."""

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import pytest

from resurge.coordinator.commands import Adopt, Run, WriteManifest
from resurge.coordinator.scheduling import STRATEGIES
from resurge.experiments.hashtag_topology import PRIORITIES
from resurge.model.requests import Move
from resurge.simulator.faults import Arrive, Kill, RestartDriver, Schedule
from resurge.simulator.simulation import Drawn, Outcome, simulate
from resurge.telemetry.events import (
    CheckpointFinished,
    CopiesUsed,
    MoveStarted,
    NodeJoined,
    NodeLost,
    PartitionsGivenUp,
    RecoveryPlanned,
)
from resurge.telemetry.recovery_metrics import outages
from tests.support.simulated_scenarios import SCENARIOS

FEW, CHUNK = 2_000, 25
Found = TypeVar("Found")
FAILED_SEEDS = Path(__file__).parent / "failed_seeds.txt"


def kept_seeds() -> list[tuple[str, int, str]]:
    """Seeds that failed once, each with its scenario and its strategy."""
    lines = [line.split() for line in FAILED_SEEDS.read_text().splitlines() if line and not line.startswith("#")]
    places = [(line[0].rpartition(":"), line[1]) for line in lines]
    return [(scenario or "random", int(seed), strategy) for (scenario, _, seed), strategy in places]


def described(outcome: Outcome) -> str:
    """What broke, and the command that repeats it."""
    call = f"simulate('{outcome.scenario.name}', {outcome.seed}, '{outcome.strategy}')"
    return (
        f"seed {outcome.seed} with {outcome.strategy}: {outcome.broken}\n"
        f'repeat it with: .venv/bin/python -c "from resurge.simulator.simulation import simulate; print({call}.broken)"\n'
        f"and keep it: add '{outcome.scenario.name}:{outcome.seed} {outcome.strategy}' to {FAILED_SEEDS.name}"
    )


def mapped(work: Callable[[int], Found], count: int, many: int) -> list[Found]:
    """What some work finds for so many seeds; where many schedules were asked for, processes share them."""
    if many <= FEW:
        return [work(seed) for seed in range(count)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(work, range(count), chunksize=CHUNK))


def assert_none_broken(broken: Iterable[str | None]) -> None:
    """No schedule went wrong; the first ones that did, with what repeats them."""
    lines = [line for line in broken if line]
    assert not lines, f"{len(lines)} schedules failed:\n" + "\n".join(lines[:10])


def tried(seed: int) -> tuple[str | None, str]:
    """What broke in a schedule, and its strategy if nodes were lost."""
    outcome = simulate("random", seed, STRATEGIES[seed % len(STRATEGIES)])
    strategy = outcome.strategy if any(isinstance(event, NodeLost) for event in outcome.events) else ""
    if outcome.broken:
        return described(outcome), strategy
    if outcome.recovery.all_live and any(outage.to_s is None for outage in outages(outcome.events)):
        return f"seed {seed} with {outcome.strategy}: some query was never told to be back", strategy
    return None, strategy


def test_no_schedule_loses_or_repeats_anything(request: pytest.FixtureRequest) -> None:
    """Safety after every step, liveness at the end, whatever dies and whenever."""
    count = request.config.getoption("--schedules")
    found = mapped(tried, count, count)
    assert_none_broken(broken for broken, _ in found)
    assert {strategy for _, strategy in found if strategy} == set(STRATEGIES)


def moved(seed: int) -> tuple[str | None, Counter[tuple[str, str]], bool]:
    """What broke in a schedule with requests, how each kind of request was answered, and whether copies were used."""
    outcome = simulate("elastic", seed, STRATEGIES[seed % len(STRATEGIES)])
    verdicts = Counter[tuple[str, str]]()
    for driver in outcome.drivers:
        for name, answers in driver.requests.answers.items():
            ask = driver.requests.asked[name]
            verdicts[ask.how if isinstance(ask, Move) else type(ask).__name__, answers[-1].verdict.value] += 1
    is_from_copies = any(isinstance(event, CopiesUsed) for event in outcome.events)
    return described(outcome) if outcome.broken else None, verdicts, is_from_copies


def test_no_move_loses_or_repeats_anything(request: pytest.FixtureRequest) -> None:
    """Users move, drain and balance while nodes and drivers die: every request is answered, and every way was gone to its end."""
    many = request.config.getoption("--schedules")
    count = many // 8
    found = mapped(moved, count, many)
    verdicts = sum((counted for _, counted, _ in found), Counter[tuple[str, str]]())
    assert_none_broken(broken for broken, _, _ in found)
    for kind in ("precopy", "direct", "Drain", "Balance"):
        assert count < 100 or all(verdicts[kind, verdict] for verdict in ("done", "failed", "refused")), verdicts
    for kind in ("cpa", "cpal"):
        assert count < 100 or all(verdicts[kind, verdict] for verdict in ("done", "refused")), verdicts
    assert count < 100 or any(is_from_copies for _, _, is_from_copies in found), "no recovery went on from a copy"


def scaled(seed: int) -> tuple[str | None, Counter[str]]:
    """What broke in a schedule in which the number of nodes changes, and which commands were sent."""
    outcome = simulate("scaling", seed, STRATEGIES[seed % len(STRATEGIES)])
    sent = Counter(type(command).__name__ for driver in outcome.drivers for commands in driver.sent for command in commands)
    return described(outcome) if outcome.broken else None, sent


def test_no_change_of_the_number_of_nodes_loses_or_repeats_anything(request: pytest.FixtureRequest) -> None:
    """The job asks for nodes and gives them back while users do so too, and nodes and drivers die."""
    many = request.config.getoption("--schedules")
    found = mapped(scaled, many // 8, many)
    sent = sum((counted for _, counted in found), Counter[str]())
    assert_none_broken(broken for broken, _ in found)
    assert len(found) < 20 or (sent["RequestNodes"] and sent["ReleaseNodes"]), sent


def limited(seed: int) -> tuple[str | None, bool, bool]:
    """What broke in a schedule in which input is kept for so long only; whether some of it was given up, and remembered."""
    outcome = simulate("limited", seed, STRATEGIES[seed % len(STRATEGIES)])
    is_given_up = any(isinstance(event, PartitionsGivenUp) for event in outcome.events)
    is_remembered = any(driver.first.gaps for driver in outcome.drivers)
    return described(outcome) if outcome.broken else None, is_given_up, is_remembered


def test_no_more_is_skipped_than_is_declared(request: pytest.FixtureRequest) -> None:
    """Partitions are given up while nodes and drivers die: gaps are allowed, counted and remembered; all else is exactly once."""
    many = request.config.getoption("--schedules")
    count = many // 8
    found = mapped(limited, count, many)
    given_up, remembered = (sum(each[part] for each in found) for part in (1, 2))
    assert_none_broken(broken for broken, _, _ in found)
    assert count < 100 or (given_up > count // 10 and remembered > count // 20)


def crowded(seed: int) -> tuple[str | None, bool]:
    """What broke in a schedule with large partitions, and whether partitions moved while queries were out."""
    outcome = simulate("crowded", seed, "incremental")
    begun = [event.at_s for event in outcome.events if isinstance(event, MoveStarted)]
    out = [(outage.from_s, outage.to_s or float("inf")) for outage in outages(outcome.events)]
    has_made_room = any(from_s < at_s < to_s for at_s in begun for from_s, to_s in out)
    return described(outcome) if outcome.broken else None, has_made_room


def test_no_room_that_is_made_loses_or_repeats_anything(request: pytest.FixtureRequest) -> None:
    """Live partitions move closer for what fits nowhere, while nodes and drivers die."""
    many = request.config.getoption("--schedules")
    found = mapped(crowded, many // 8, many)
    assert_none_broken(broken for broken, _ in found)
    assert len(found) < 100 or sum(has_made_room for _, has_made_room in found) > len(found) // 50


@pytest.mark.parametrize(("scenario", "seed", "strategy"), kept_seeds())
def test_kept_seeds_do_not_fail_again(scenario: Drawn, seed: int, strategy: str) -> None:
    """What was once wrong stays right."""
    outcome = simulate(scenario, seed, strategy)
    assert outcome.broken is None, described(outcome)


def test_checkpoints_do_not_wait_for_what_is_down() -> None:
    """Eight of ten nodes stay away for a hundred epochs: all that is live goes on from less than an interval ago."""
    lost = Schedule.of([Kill(12.0, 8), Kill(100.0, 1), Arrive(110.0)])
    scenario = replace(SCENARIOS["eight-of-ten"], schedule=lost, heals=False, settle_s=20.0)
    outcome = simulate(scenario, 1)
    assert outcome.broken is None
    recovery, interval = outcome.recovery, scenario.checkpoint_interval
    assert recovery.live and not recovery.all_live
    assert recovery.cuts.first < 20
    assert recovery.cuts.last > 90
    # The newest one may be being written.
    assert all(recovery.head - recovery.restore_point(partition) <= interval for partition in recovery.live)
    saved = [event.epoch for event in outcome.events if isinstance(event, CheckpointFinished)]
    assert len([epoch for epoch in saved if epoch > 20]) > 10


def test_what_is_kept_for_the_absent_is_dropped_when_they_are_back() -> None:
    """One checkpoint with everybody, and the epochs since; also after drivers that restarted while some were away."""
    lost = Schedule.of(
        [Kill(12.0, 8), RestartDriver(60.0), RestartDriver(80.0, 3), *(Arrive(90.0) for _ in range(8)), Arrive(500.0)]
    )
    scenario = replace(SCENARIOS["eight-of-ten"], schedule=lost)
    outcome = simulate(scenario, 1)
    assert outcome.broken is None
    assert len(outcome.drivers) == 3
    away = outcome.drivers[1].first.recovery
    assert len(away.cuts.kept) > 1 and away.cuts.first < 20 < away.cuts.last
    assert len({away.statuses[partition].cursor for partition in away.graph.upstream}) > 1
    assert len(outcome.recovery.cuts.kept) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_named_scenarios_recover(name: str, strategy: str) -> None:
    """The fifteen queries come back from each named disaster, under every strategy."""
    outcome = simulate(SCENARIOS[name], 1, strategy)
    assert outcome.broken is None
    assert outcome.recovery.all_live


@pytest.mark.parametrize("algorithm", ["best-density", "operator-centric"])
def test_other_planners_keep_the_promises(algorithm: str) -> None:
    """What the planner chooses never matters for safety."""
    for seed in range(20):
        outcome = simulate("random", seed, algorithm=algorithm)
        assert outcome.broken is None, f"{algorithm}: {described(outcome)}"


def test_the_same_seed_gives_the_same_run() -> None:
    """No clock and no global chance: events repeat exactly."""
    assert simulate("random", 7).events == simulate("random", 7).events


def test_the_most_valuable_queries_are_chosen_first() -> None:
    """After most nodes died, the first plan for a new node brings back queries of high priority, not just any."""
    outcome = simulate(SCENARIOS["eight-of-ten"], 1)
    joined_s = next(event.at_s for event in outcome.events if isinstance(event, NodeJoined))
    plans = [event.queries for event in outcome.events if isinstance(event, RecoveryPlanned) and event.at_s >= joined_s]
    priorities = [PRIORITIES[query.rsplit("/", 1)[0]] for query in plans[0]]
    assert sum(priorities) / len(priorities) > sum(PRIORITIES.values()) / len(PRIORITIES)
    assert len(plans) > 2


def test_schedules_lose_nodes_while_a_checkpoint_is_being_written() -> None:
    """Some checkpoints are logged several epochs after they were taken, and some never: both are among what is tried."""
    late, given_up = 0, 0
    for seed in range(40):
        for driver in simulate("random", seed, "incremental").drivers:
            sent = [command for commands in driver.sent for command in commands]
            jobs = [command.job for command in sent if isinstance(command, Run)]
            adopted = {command.attempt for command in sent if isinstance(command, Adopt)}
            taken = [job.attempt for job in jobs if job.is_checkpoint and job.attempt in adopted]
            logged = {command.attempt for command in sent if isinstance(command, WriteManifest)}
            late += sum(sum(job.awaits == attempt for job in jobs) > 2 for attempt in logged)
            given_up += len(set(taken[:-1]) - logged)
    assert late and given_up
