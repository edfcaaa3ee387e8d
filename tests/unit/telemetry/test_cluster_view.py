"""Which nodes there are and which queries are up, told in the user's names."""

import io

from rich.console import Console

from resurge.cli.live_view import RecentEvents, drawn, incident, plain_line
from resurge.telemetry.events import (
    CopiesPlaced,
    JobStarted,
    LagMeasured,
    LoadMeasured,
    MoveEnded,
    NodeJoined,
    NodeLoad,
    NodeLost,
    NodeNamed,
    NodeResponded,
    NodeSuspected,
    QueriesChanged,
)
from tests.support.telemetry import START_S, epoch

QUERIES = {"busy": 5, "quiet": 1}


def view_of(*events: object, generation: int = 1) -> RecentEvents:
    """A view of a job on two nodes of a cluster, after these events."""
    seen = RecentEvents()
    begun = JobStarted(START_S, "trending", generation, "spark://127.0.0.1:7077", ["0", "1"], QUERIES, 8)
    for event in (NodeNamed(START_S, "0", "node-2"), NodeNamed(START_S, "1", "node-1"), begun, epoch(1), *events):
        seen.add(event)
    return seen


def screen(seen: RecentEvents) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    console.print(drawn(seen.snapshot(START_S + 2), cluster=seen.cluster))
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_the_view_has_the_nodes_by_the_users_names_and_which_queries_are_up():
    """Before a failure, after it, and when the query is back."""
    lost = NodeLost(START_S, "1", 4, False)
    down = QueriesChanged(START_S, 1, ["busy/0", "busy/3"], [])
    assert "2 nodes: node-1, node-2" in screen(view_of())
    assert "busy up 5 10 600 ms 600 ms" in screen(view_of())
    after = screen(view_of(lost, down))
    assert "1 node: node-2" in after
    assert "1 of 2 queries down" in after
    assert "busy down: 2 partitions 5 10 600 ms 600 ms" in after
    assert "quiet up 1 2 600 ms 600 ms" in after
    back = screen(view_of(lost, down, NodeJoined(START_S, "2", 1.0), QueriesChanged(START_S, 1, [], ["busy/0", "busy/3"])))
    assert "2 nodes: 2, node-2" in back, "a node without a name has its executor's number"
    assert "busy up 5 10 600 ms 600 ms" in back


def test_an_incident_names_the_node_that_the_user_killed():
    """`cluster kill node-1` is told as the loss of node-1, with the executor that Spark calls it."""
    seen = view_of()
    assert incident(NodeLost(START_S, "1", 4, False), seen.cluster) == "node-1 (executor 1) lost, with 4 partitions"
    assert incident(NodeJoined(START_S, "7", 1.0), seen.cluster) == "node 7 joined"


def test_who_is_waited_for_is_shown_until_it_answers():
    """A node that hangs holds up all that use it."""
    suspected = NodeSuspected(START_S, "0", 2.0, 4.0)
    assert incident(suspected, view_of().cluster) == "waiting for node-2 (executor 0): no answer for 2 s, declared dead after 4 s"
    waiting = view_of(suspected)
    assert "waiting for node-2 (executor 0)" in screen(waiting)
    line = plain_line(epoch(2), waiting.snapshot(START_S), waiting.cluster)
    assert line is not None and line.endswith("waiting for node-2 (executor 0)")
    assert not any("waiting" in line for line in screen(view_of(suspected, NodeResponded(START_S, "0", 2.5))))


def test_queries_of_a_resumed_job_are_starting_until_they_are_back():
    """A new job has none that anybody waits for."""
    resumed = view_of(QueriesChanged(START_S, 1, [], ["busy/0"]), generation=2)
    assert "busy up 5 10 600 ms 600 ms" in screen(resumed)
    assert "quiet starting 1 2 600 ms 600 ms" in screen(resumed)


def test_the_view_has_the_lag_of_every_partition():
    """Those with the most first, and a bound on how many."""
    lag = {"orders": {"0": 12, "1": 3_400, "2": 0}, "many": {str(number): 100 - number for number in range(20)}}
    shown = screen(view_of(LagMeasured(START_S, lag)))
    assert "lag of orders by partition: 1: 3,400, 0: 12, 2: 0" in shown
    (line,) = [line for line in shown if line.startswith("lag of many")]
    assert line.endswith("7: 93 and 12 more")


def test_the_view_has_what_nodes_hold_and_how_full_they_are():
    """The fullest first; one that drains may spend nothing."""
    nodes = {
        "0": NodeLoad(0.1, 0.8, {"counts": 3}),
        "1": NodeLoad(0.6, 0.8, {"counts": 5, "top": 1}),
        "2": NodeLoad(0.0, 0.0, {}),
    }
    shown = screen(view_of(LoadMeasured(START_S, 1, {}, nodes)))
    at = shown.index("node utilisation partitions of which")
    assert shown[at + 1 : at + 4] == ["node-1 75% 6 counts 5, top 1", "node-2 12% 3 counts 3", "2 drains 0"]


def test_a_move_is_told_with_its_pause():
    """Also one that did not succeed."""
    assert (
        incident(MoveEnded(START_S, "", 6, 1.25, 0.016, 28_698))
        == "6 partitions moved in 1.25 s, paused for 16 ms, 28.7 kB shipped"
    )
    assert incident(MoveEnded(START_S, "r1", 0, 2.0, 0.0, 0, "1 was lost; nothing has moved")) == (
        "0 partitions moved in 2 s: 1 was lost; nothing has moved"
    )


def test_the_view_says_how_many_copies_lie_on_each_node():
    """Only where there are copies, and none on a node that is not named."""
    nodes = {"0": NodeLoad(0.1, 0.8, {"counts": 3}), "1": NodeLoad(0.6, 0.8, {"counts": 5})}
    loads = LoadMeasured(START_S, 1, {}, nodes)
    assert "node utilisation partitions of which" in screen(view_of(loads))
    shown = screen(view_of(loads, CopiesPlaced(START_S, "correlated", {"0": 4}, 8, 4)))
    assert "node utilisation partitions copies of which" in shown
    assert "node-1 75% 5 0 counts 5" in shown
    assert "node-2 12% 3 4 counts 3" in shown
