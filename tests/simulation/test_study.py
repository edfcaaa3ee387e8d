"""The simulated study: every strategy sees the same failure, and comes back from it."""

from resurge.experiments.hashtags import MAINTAINED, PRIORITIES, WINDOWS_S
from resurge.simulator import workload
from resurge.simulator.study import STUDIED, Study, simulated_study
from resurge.telemetry.events import EpochFinished, NodeJoined, NodeLost, QueriesChanged


def test_the_simulated_topology_is_the_real_one() -> None:
    """The same operators, inputs and priorities as the job that runs on Spark."""
    assert tuple(WINDOWS_S) == workload.HASHTAG_WINDOWS
    assert dict(MAINTAINED) == workload.HASHTAG_MAINTAINED
    assert dict(PRIORITIES) == workload.HASHTAG_PRIORITIES


def test_every_strategy_loses_the_same_nodes_and_brings_all_queries_back() -> None:
    """Eight of ten nodes, at once or one after another."""
    for gap_s in (0.0, 2.0):
        runs = simulated_study(partitions=30, study=Study(gap_s=gap_s))
        assert tuple(runs) == STUDIED
        lost = {strategy: {e.node for e in events if isinstance(e, NodeLost)} for strategy, events in runs.items()}
        assert len(lost["incremental"]) == 8
        assert all(nodes == lost["incremental"] for nodes in lost.values())
        for events in runs.values():
            down = {query for e in events if isinstance(e, QueriesChanged) for query in e.down}
            back = {query for e in events if isinstance(e, QueriesChanged) for query in e.back}
            assert down <= back


def test_replacements_come_when_told() -> None:
    """Seconds after the failure, plus the time to become warm."""
    events = simulated_study(nodes=4, kill=2, strategies=["incremental"], arrivals_s=[5.0, 9.0])["incremental"]
    joined = [e.at_s for e in events if isinstance(e, NodeJoined)]
    assert len(joined) == 2
    assert 48.5 <= joined[0] < joined[1]


def test_eager_falls_behind_while_nodes_are_missing() -> None:
    """Two nodes with the work of ten: each epoch leaves more input waiting than the one before."""
    runs = simulated_study(strategies=["eager", "incremental"], arrivals_s=[60.0 + wait for wait in range(8)])
    worst = {name: max(e.lag_rows or 0 for e in run if isinstance(e, EpochFinished)) for name, run in runs.items()}
    assert worst["eager"] > 4 * worst["incremental"]
