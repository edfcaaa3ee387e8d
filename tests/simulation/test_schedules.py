"""Thousands of failure schedules against the real protocols, strategies and planners, in virtual time."""

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from resurge.coordinator.scheduling import STRATEGIES
from resurge.experiments.hashtag_topology import PRIORITIES
from resurge.simulator.run import Outcome, simulate
from resurge.telemetry.events import NodeJoined, NodeLost, RecoveryPlanned
from resurge.telemetry.recovery_metrics import outages
from tests.support.simulated_scenarios import SCENARIOS

FEW, SHARE = 2_000, 250
FAILED_SEEDS = Path(__file__).parent / "failed_seeds.txt"


def kept_seeds() -> list[tuple[int, str]]:
    """Seeds that failed once, each with its strategy."""
    lines = [line.split() for line in FAILED_SEEDS.read_text().splitlines() if line and not line.startswith("#")]
    return [(int(line[0]), line[1]) for line in lines]


def described(outcome: Outcome) -> str:
    """What broke, and the command that repeats it."""
    call = f"simulate('random', {outcome.seed}, '{outcome.strategy}')"
    return (
        f"seed {outcome.seed} with {outcome.strategy}: {outcome.broken}\n"
        f'repeat it with: .venv/bin/python -c "from resurge.simulator.run import simulate; print({call}.broken)"\n'
        f"and keep it: add '{outcome.seed} {outcome.strategy}' to {FAILED_SEEDS.name}"
    )


def tried(seeds: range) -> tuple[list[str], Counter[str]]:
    """What broke in some schedules, and in how many of each strategy nodes were lost."""
    broken, losses = [], Counter[str]()
    for seed in seeds:
        outcome = simulate("random", seed, STRATEGIES[seed % len(STRATEGIES)])
        losses[outcome.strategy] += any(isinstance(event, NodeLost) for event in outcome.events)
        if outcome.broken:
            broken.append(described(outcome))
        elif outcome.facts.is_whole and any(outage.to_s is None for outage in outages(outcome.events)):
            broken.append(f"seed {outcome.seed} with {outcome.strategy}: some query was never told to be back")
    return broken, losses


def test_no_schedule_loses_or_repeats_anything(request: pytest.FixtureRequest) -> None:
    """Safety after every step, liveness at the end, whatever dies and whenever; many schedules are shared by processes."""
    count = request.config.getoption("--schedules")
    parts = [range(first, min(first + SHARE, count)) for first in range(0, count, SHARE)]
    if count <= FEW:
        results = [tried(part) for part in parts]
    else:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            results = list(pool.map(tried, parts))
    broken = [line for lines, _ in results for line in lines]
    assert not broken, f"{len(broken)} schedules failed:\n" + "\n".join(broken[:10])
    assert set().union(*(losses for _, losses in results)) == set(STRATEGIES)


@pytest.mark.parametrize(("seed", "strategy"), kept_seeds())
def test_kept_seeds_do_not_fail_again(seed: int, strategy: str) -> None:
    """What was once wrong stays right."""
    outcome = simulate("random", seed, strategy)
    assert outcome.broken is None, described(outcome)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_named_scenarios_recover(name: str, strategy: str) -> None:
    """The fifteen queries come back from each named disaster, under every strategy."""
    outcome = simulate(SCENARIOS[name], 1, strategy)
    assert outcome.broken is None
    assert outcome.facts.is_whole


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
