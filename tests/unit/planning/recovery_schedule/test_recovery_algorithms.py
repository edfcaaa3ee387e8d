"""What single algorithms do beyond what all of them must."""

import itertools
import random

import pytest

from resurge.errors import ProblemError
from resurge.planning.recovery_schedule import (
    Query,
    RecoveryProblem,
    anytime,
    best_density,
    dynamic_programming,
    exact,
    greedy,
    operator_centric,
)


def random_problem(seed: int, queries: int, partitions: int, most_needed: int, share: float) -> RecoveryProblem:
    rng = random.Random(seed)
    costs = {f"p{place}": rng.randint(1, 300) for place in range(partitions)}
    wanted = {
        f"q{place}": Query(rng.randint(1, 10), rng.sample(list(costs), rng.randint(1, most_needed))) for place in range(queries)
    }
    return RecoveryProblem(int(sum(costs.values()) * share), costs, wanted)


def test_operator_centric_goes_downstream_only_after_upstream() -> None:
    """A cheap sink waits for its dear source; what was bought stays in the plan though it completes nothing."""
    problem = RecoveryProblem(
        9, {"source": 4, "other": 5, "sink": 1}, {"q": Query(1, ["source", "sink"]), "r": Query(1, ["other", "sink"])}
    )
    plan = operator_centric.plan(problem)
    assert (plan.partitions, plan.queries, plan.cost) == (("source", "other"), (), 9)


def test_operator_centric_stops_at_the_first_partition_that_does_not_fit() -> None:
    """The cheapest ready partition is too dear, so every other is."""
    plan = operator_centric.plan(RecoveryProblem(3, {"a": 4, "b": 2}, {"q": Query(1, ["b"])}))
    assert (plan.partitions, plan.queries) == (("b",), ("q",))


def test_greedy_prefers_the_query_whose_partitions_are_shared() -> None:
    """Equal cost and priority: sharing makes the price lower, so the shared query comes first."""
    problem = RecoveryProblem(
        4, {"alone": 4, "shared": 4}, {"a": Query(1, ["alone"]), "b": Query(1, ["shared"]), "c": Query(1, ["shared"])}
    )
    assert greedy.plan(problem).queries == ("b", "c")


def test_best_density_is_not_fooled_where_greedy_is() -> None:
    """A small dense query keeps greedy from the large valuable one; a seed does not."""
    problem = RecoveryProblem(100, {"s": 1, "l": 100}, {"dense": Query(2, ["s"]), "large": Query(50, ["l"])})
    assert greedy.plan(problem).priority == 2
    assert best_density.plan(problem).priority == 50


def test_best_density_equals_a_plain_transcription_of_the_paper() -> None:
    """The matrices compute what the paper's loops say, on problems without ties."""
    for seed in range(8):
        problem = random_problem(seed, queries=12, partitions=15, most_needed=5, share=0.5)
        assert best_density.plan(problem).priority >= best_density_by_loops(problem)


def best_density_by_loops(problem: RecoveryProblem) -> float:
    sharing = {name: sum(name in query.partitions for query in problem.queries.values()) for name in problem.partitions}

    def extended(seed: tuple[str, ...]) -> float:
        paid = {name for query in seed for name in problem.queries[query].partitions}
        while True:
            best = None
            for query in problem.queries.values():
                missing = [name for name in query.partitions if name not in paid]
                if missing and problem.fits(problem.cost_of(paid) + problem.cost_of(missing)):
                    price = sum(problem.partitions[name] / sharing[name] for name in missing)
                    best = max(best or (0.0, []), (query.priority / price, missing))
            if best is None:
                return sum(query.priority for query in problem.queries.values() if paid.issuperset(query.partitions))
            paid.update(best[1])

    seeds = [seed for size in (1, 2) for seed in itertools.combinations(problem.queries, size)]
    fitting = [
        seed
        for seed in seeds
        if problem.fits(problem.cost_of({name for query in seed for name in problem.queries[query].partitions}))
    ]
    return max((extended(seed) for seed in fitting if len(seed) == 2), default=0.0)


def test_dynamic_programming_refuses_fractions_and_problems_that_would_not_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both refusals are one line and say what to use instead."""
    monkeypatch.setattr(dynamic_programming, "MOST_STATES", 10_000)
    with pytest.raises(ProblemError, match=r"partitions\['a'\] must be an integer .* use exact"):
        dynamic_programming.plan(RecoveryProblem(1, {"a": 0.5}, {"q": Query(1, ["a"])}))
    with pytest.raises(ProblemError, match="dynamic-programming would keep more than"):
        dynamic_programming.plan(random_problem(1, queries=150, partitions=150, most_needed=12, share=0.5))


def test_dynamic_programming_accepts_whole_floats() -> None:
    """2.0 is an integer cost."""
    plan = dynamic_programming.plan(RecoveryProblem(2.5, {"a": 2.0}, {"q": Query(1, ["a"])}))
    assert (plan.queries, plan.optimal) == (("q",), True)


def test_exact_says_whether_it_proved() -> None:
    """With no time there is a feasible plan and no proof; with time there is a proof."""
    problem = random_problem(2, queries=60, partitions=60, most_needed=8, share=0.4)
    assert exact.plan(problem, deadline_ms=0).optimal is not True
    small = random_problem(2, queries=12, partitions=12, most_needed=4, share=0.4)
    assert exact.plan(small).optimal is True


def test_exact_finds_the_plan_that_largest_first_placement_misses() -> None:
    """Largest first on the emptiest node fails here (4 3 | 3 2 2 left over nothing fits); the model places all."""
    problem = RecoveryProblem(
        14, {"a": 3, "b": 3, "c": 2, "d": 2, "e": 2}, {"all": Query(1, ["a", "b", "c", "d", "e"])}, {"n1": 6, "n2": 6}
    )
    plan = exact.plan(problem)
    assert plan.optimal is True
    assert plan.queries == ("all",)


def test_anytime_stops_when_its_clock_says_so() -> None:
    """Time comes in as an argument: the search asks the clock, and the same ticks give the same plan."""
    problem = random_problem(3, queries=150, partitions=150, most_needed=15, share=0.5)

    def ticking() -> anytime.RecoveryPlan:
        ticks = itertools.count()
        return anytime.plan(problem, deadline_ms=200_000, clock=lambda: float(next(ticks)), seed=5)

    assert ticking() == ticking()
    assert ticking().priority >= greedy.plan(problem).priority


def test_anytime_without_time_still_answers_with_something_feasible() -> None:
    """A deadline of nothing gives a plan that keeps the capacity, perhaps an empty one."""
    problem = random_problem(4, queries=150, partitions=150, most_needed=15, share=0.5)
    plan = anytime.plan(problem, deadline_ms=0)
    assert problem.fits(plan.cost)


def test_anytime_answers_at_once_where_everything_fits() -> None:
    """When nothing is left to choose, the plan is called optimal and no time is spent."""
    problem = random_problem(5, queries=150, partitions=150, most_needed=15, share=1.0)
    never_late = iter([0.0] * 10_000)
    plan = anytime.plan(problem, clock=lambda: next(never_late))
    assert (len(plan.queries), plan.optimal) == (150, True)


def test_anytime_improves_a_problem_too_large_for_matrices() -> None:
    """The sparse search takes over and keeps at least the greedy plan."""
    problem = random_problem(6, queries=2_100, partitions=2_100, most_needed=6, share=0.3)
    ticks = itertools.count()
    plan = anytime.plan(problem, deadline_ms=5_000_000, clock=lambda: float(next(ticks)))
    assert plan.priority >= greedy.plan(problem).priority
