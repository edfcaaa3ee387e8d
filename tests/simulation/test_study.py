"""The simulated study: every strategy sees the same failure, and comes back from it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from resurge.coordinator import costs
from resurge.simulator.simulation import simulate
from resurge.studies.correlated_failure import arrivals
from resurge.studies.correlated_failure_report import summarise, write_figure
from resurge.studies.failure_cases import DOWNSTREAM, UPSTREAM, FailureCase
from resurge.studies.figures import STRATEGIES, Figures
from resurge.studies.simulated_failure import Study, scenario_of, simulated_study
from resurge.telemetry.events import EpochFinished, Event, MoveEnded, NodeJoined, NodeLost, NodesKilled, QueriesChanged
from resurge.telemetry.recovery_metrics import available_queries

ARRIVALS_S = tuple(15.0 + 6 * index for index in range(8))


def played(*cases: FailureCase, nodes: int = 10, partitions: int = 15) -> dict[str, list[Event]]:
    """The cases' telemetry."""
    return {name: list(events) for _, name, events in simulated_study({"cases": cases}, nodes, partitions, seed=1)}


def strategies(*chosen: str, gap_s: float = 0.0) -> Sequence[FailureCase]:
    """The cases of the figure that compares them."""
    return Figures(arrivals_s=ARRIVALS_S, gap_s=gap_s, chosen=chosen or STRATEGIES).figures()["strategies"]


def test_every_strategy_loses_the_same_nodes_and_brings_all_queries_back() -> None:
    """Eight of ten nodes, at once or one after another."""
    for gap_s in (0.0, 2.0):
        runs = played(*strategies(gap_s=gap_s), partitions=30)
        assert tuple(runs) == STRATEGIES
        lost = {strategy: {e.node for e in events if isinstance(e, NodeLost)} for strategy, events in runs.items()}
        assert len(lost["incremental"]) == 8
        assert all(nodes == lost["incremental"] for nodes in lost.values())
        for events in runs.values():
            down = {query for e in events if isinstance(e, QueriesChanged) for query in e.down}
            back = {query for e in events if isinstance(e, QueriesChanged) for query in e.back}
            assert down <= back


def test_replacements_come_when_told() -> None:
    """Seconds after the failure, plus the time to become warm."""
    events = played(FailureCase("two", "incremental", 2, (5.0, 9.0)), nodes=4)["two"]
    killed = next(e.at_s for e in events if isinstance(e, NodesKilled))
    joined = [e.at_s - killed for e in events if isinstance(e, NodeJoined)]
    warm_s = Study().warm_up_s
    assert len(joined) == 2
    assert 5.0 + warm_s <= joined[0] < joined[1]


def test_incremental_wins() -> None:
    """With too few nodes left, the most valuable query is back long before blocking's, and less is out of order for less long.

    Over three failures: in one of them no lost query fits on the survivors, so that the first one waits for a node.
    """
    cases = strategies("incremental", "blocking", "eager")
    tables = [
        {name: summarise(events) for _, name, events in simulated_study({"cases": cases}, 10, 15, seed)} for seed in (1, 2, 3)
    ]
    first, area = (
        {name: sum(table[name][key] for table in tables) for name in tables[0]} for key in ("first_back_s", "outage_area")
    )
    assert first["incremental"] <= first["blocking"] / 3
    assert area["incremental"] <= 0.6 * min(area["blocking"], area["eager"])


def test_at_no_moment_are_fewer_queries_available_than_with_blocking() -> None:
    """Nor at the end: what fits nowhere comes back with the last node, where most is left."""
    failures = ((5, 80.0), (2, 80.0), (3, 80.0), (1, 30.0), (5, 30.0), (10, 30.0), (11, 30.0), (13, 30.0))
    for seed, last_s in failures:
        moments = arrivals(8, seed, 10.0, last_s)
        cases = Figures(10, 8, moments, chosen=("incremental", "blocking")).figures()["strategies"]
        runs = {name: list(events) for _, name, events in simulated_study({"cases": cases}, 10, 15, seed)}
        ours, blocking = (dict(available_queries(events)) for events in runs.values())
        assert not {at_s: (ours[at_s], blocking[at_s]) for at_s in ours.keys() & blocking.keys() if ours[at_s] < blocking[at_s]}
        back, others = (summarise(events) for events in runs.values())
        assert back["all_available_s"] <= others["all_available_s"]
        assert back["all_back_s"] <= others["all_back_s"]


def test_what_fits_nowhere_but_in_sum_comes_back_though_no_node_does() -> None:
    """Two of ten nodes die for good. Each of two lost partitions needs 0.6 of a node, and none has more than 0.45 left.

    Then balancing swaps partitions, until no node has more than it may.
    """
    for seed in (1, 2, 4):
        scenario = scenario_of(FailureCase("two", "incremental", 2, ()), Study(load=0.6), 10, 15, seed)
        outcome = simulate(scenario, seed)
        assert outcome.broken is None and outcome.recovery.all_live
        down = {query for event in outcome.events if isinstance(event, QueriesChanged) for query in event.down}
        assert down and len(outcome.recovery.capacity) == 8
        used = costs.used(outcome.recovery)[1]
        assert all(used.get(node, 0.0) <= capacity for node, capacity in outcome.recovery.capacity.items())


def test_live_partitions_make_room_for_what_fits_nowhere() -> None:
    """Two of ten nodes die for good. What is lost needs 0.66 of a node or more, and none has 0.55 left before smaller ones move closer."""
    for seed in (1, 3, 5):
        scenario = scenario_of(FailureCase("two", "incremental", 2, ()), Study(load=0.7), 10, 15, seed)
        outcome = simulate(scenario, seed)
        assert outcome.broken is None and outcome.recovery.all_live
        assert len(outcome.recovery.capacity) == 8
        ended = [event for event in outcome.events if isinstance(event, MoveEnded)]
        assert ended and not ended[0].failure and ended[0].moved > 1
        back_s = max(event.at_s for event in outcome.events if isinstance(event, QueriesChanged) and event.back)
        assert ended[0].at_s <= back_s


def test_queries_come_back_in_order_of_value() -> None:
    """What comes back later is worth no more per query, as long as it needs as much."""
    events = played(*strategies("incremental"))["incremental"]
    assert len([e for e in events if isinstance(e, QueriesChanged) and e.back]) > 3


def test_eager_falls_behind_while_nodes_are_missing() -> None:
    """Two nodes with the work of ten: each epoch leaves more input waiting than the one before."""
    late = tuple(60.0 + wait for wait in range(8))
    runs = played(*(FailureCase(name, name, 8, late) for name in ("eager", "incremental")))
    worst = {name: max(e.lag_rows or 0 for e in run if isinstance(e, EpochFinished)) for name, run in runs.items()}
    assert worst["eager"] > 4 * worst["incremental"]


def test_a_failure_downstream_leaves_the_windows_alone() -> None:
    """Nodes are chosen by what they hold: upstream takes every query down, downstream leaves the windows' own."""
    runs = played(*(FailureCase(place, "incremental", 4, ARRIVALS_S[:4], place) for place in (UPSTREAM, DOWNSTREAM)))
    down = {
        place: {query.split("/")[0] for e in events if isinstance(e, QueriesChanged) for query in e.down}
        for place, events in runs.items()
    }
    assert len(down[UPSTREAM]) == 15
    assert not down[DOWNSTREAM] & {"O1", "O2", "O3", "O4"}


def test_kills_one_after_another_are_apart() -> None:
    """As far apart as the case says."""
    events = played(FailureCase("turns", "incremental", 3, (), gap_s=4.0))["turns"]
    moments = [e.at_s for e in events if isinstance(e, NodesKilled)]
    assert [round(later - earlier, 6) for earlier, later in pairwise(moments)] == [4.0, 4.0]


def test_every_figure_is_drawn_from_what_happened(tmp_path: Path) -> None:
    """Plots and tables of all figures, also when a study is stopped after some cases; too few nodes make eager fall behind."""
    runs: dict[str, dict[str, Sequence[Event]]] = {}
    tables: dict[str, dict[str, Any]] = {}
    staged = Figures(arrivals_s=ARRIVALS_S, chosen=("incremental", "eager")).figures()
    wanted = {"strategies": staged["strategies"], "overload": staged["overload"], "places": staged["places"][:1]}
    for figure, case, events in simulated_study(wanted, seed=1):
        runs.setdefault(figure, {})[case] = events
        tables[figure] = write_figure(figure, runs[figure], tmp_path, "a test")
        assert json.loads((tmp_path / "summary.json").read_text()).keys() == runs["strategies"].keys()
    for name in ("latency.png", "available.png", "overload.png", "places.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert tables["overload"]["eager-8"]["falls_behind"]
    assert not tables["overload"]["eager-2"]["falls_behind"]
    assert "falls behind" in (tmp_path / "summary.md").read_text()


def test_a_large_study_is_shared_out_among_processes() -> None:
    """With the same outcome."""
    cases = [FailureCase(name, name, 20, ()) for name in ("incremental", "eager")]
    together = list(simulated_study({"cases": cases}, 40, 600, seed=1))
    alone = [next(iter(simulated_study({"cases": [case]}, 40, 600, seed=1))) for case in cases]
    assert together == alone


def test_figures_name_every_scene_once() -> None:
    """Of a cluster of any size."""
    for nodes, kill in ((10, 8), (3, 2), (2, 1)):
        for cases in Figures(nodes, kill, ARRIVALS_S[:kill]).figures().values():
            names = [case.name for case in cases]
            assert len(names) == len(set(names))
            assert all(0 < case.kill <= nodes for case in cases)


def test_balancing_begins_when_a_recovery_has_ended_and_makes_epochs_as_short_as_before() -> None:
    """Most partitions of a level recover on the few nodes that are left: they move at once, and from all nodes side by side."""
    nodes, kill = 60, 48
    case = FailureCase("incremental", "incremental", kill, arrivals(kill, 1, 10.0, 80.0))
    study = replace(Study(), node_overhead_s=0.0)
    scenario = replace(scenario_of(case, study, nodes, 600, 1), balances=True)
    outcome = simulate(scenario, 1, is_checked=False)
    assert outcome.broken is None
    epochs = [event for event in outcome.events if isinstance(event, EpochFinished)]
    killed_s = next(event.at_s for event in outcome.events if isinstance(event, NodesKilled))
    before_s = max(event.took_s for event in epochs if 20 < event.at_s < killed_s)
    moves = [event for event in outcome.events if isinstance(event, MoveEnded)]
    assert moves and moves[0].took_s <= 3 * study.interval_s
    assert epochs[-1].took_s <= 1.1 * before_s
