"""The simulated study: every strategy sees the same failure, and comes back from it."""

from collections.abc import Sequence
from itertools import pairwise

from resurge.model.scenes import DOWNSTREAM, UPSTREAM, Scene
from resurge.report.correlated_failure import summarise
from resurge.simulator.study import Study, simulated_study
from resurge.staging import STRATEGIES, Staging
from resurge.telemetry.events import EpochFinished, Event, NodeJoined, NodeLost, NodesKilled, QueriesChanged

ARRIVALS_S = tuple(15.0 + 6 * index for index in range(8))


def played(*scenes: Scene, nodes: int = 10, partitions: int = 15) -> dict[str, list[Event]]:
    """The scenes' telemetry."""
    return {name: list(events) for _, name, events in simulated_study({"scenes": scenes}, nodes, partitions, seed=1)}


def strategies(*chosen: str, gap_s: float = 0.0) -> Sequence[Scene]:
    """The scenes of the figure that compares them."""
    return Staging(arrivals_s=ARRIVALS_S, gap_s=gap_s, chosen=chosen or STRATEGIES).figures()["strategies"]


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
    events = played(Scene("two", "incremental", 2, (5.0, 9.0)), nodes=4)["two"]
    killed = next(e.at_s for e in events if isinstance(e, NodesKilled))
    joined = [e.at_s - killed for e in events if isinstance(e, NodeJoined)]
    warm_s = Study().warm_up_s
    assert len(joined) == 2
    assert 5.0 + warm_s <= joined[0] < joined[1]


def test_incremental_wins() -> None:
    """With too few nodes left, the most valuable query is back long before blocking's, and less is out of order for less long."""
    runs = played(*strategies("incremental", "blocking", "eager"))
    ours, blocking, eager = (summarise(events) for events in runs.values())
    assert ours["first_back_s"] <= blocking["first_back_s"] / 3
    assert ours["outage_area"] <= 0.6 * blocking["outage_area"]
    assert ours["outage_area"] <= 0.6 * eager["outage_area"]


def test_queries_come_back_in_order_of_value() -> None:
    """What comes back later is worth no more per query, as long as it needs as much."""
    events = played(*strategies("incremental"))["incremental"]
    assert len([e for e in events if isinstance(e, QueriesChanged) and e.back]) > 3


def test_eager_falls_behind_while_nodes_are_missing() -> None:
    """Two nodes with the work of ten: each epoch leaves more input waiting than the one before."""
    late = tuple(60.0 + wait for wait in range(8))
    runs = played(*(Scene(name, name, 8, late) for name in ("eager", "incremental")))
    worst = {name: max(e.lag_rows or 0 for e in run if isinstance(e, EpochFinished)) for name, run in runs.items()}
    assert worst["eager"] > 4 * worst["incremental"]


def test_a_failure_downstream_leaves_the_windows_alone() -> None:
    """Nodes are chosen by what they hold: upstream takes every query down, downstream leaves the windows' own."""
    runs = played(*(Scene(place, "incremental", 4, ARRIVALS_S[:4], place) for place in (UPSTREAM, DOWNSTREAM)))
    down = {
        place: {query.split("/")[0] for e in events if isinstance(e, QueriesChanged) for query in e.down}
        for place, events in runs.items()
    }
    assert len(down[UPSTREAM]) == 15
    assert not down[DOWNSTREAM] & {"O1", "O2", "O3", "O4"}


def test_kills_one_after_another_are_apart() -> None:
    """As far apart as the scene says."""
    events = played(Scene("turns", "incremental", 3, (), gap_s=4.0))["turns"]
    moments = [e.at_s for e in events if isinstance(e, NodesKilled)]
    assert [round(later - earlier, 6) for earlier, later in pairwise(moments)] == [4.0, 4.0]
