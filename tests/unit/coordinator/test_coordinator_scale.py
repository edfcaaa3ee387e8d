"""When nodes are asked for and given back: too full or too empty for too long, within bounds, and never in a recovery."""

from dataclasses import replace

import pytest

from resurge.coordinator.commands import ReleaseNodes, RequestNodes
from resurge.coordinator.inputs import Member, NodesChanged, Requested
from resurge.coordinator.measuring import priced
from resurge.coordinator.state import ScaleBounds
from resurge.model.names import NodeId
from resurge.model.requests import Scale, Verdict
from resurge.telemetry.events import ClusterScaled
from tests.unit.coordinator.test_coordinator_moves import COUNTS, N1, N2, N3, Driven

N4 = NodeId("n4")


def scaled(least: int, most: int, cost: float) -> Driven:
    """Six partitions of a cost on three nodes of capacity 1."""
    driven = Driven()
    settings = replace(driven.state.settings, scale=ScaleBounds(least, most, full_s=3.0, empty_s=5.0, rest_s=4.0))
    driven.state = priced(replace(driven.state, settings=settings, costs=dict.fromkeys(COUNTS, cost)))
    return driven


def run(driven: Driven, epochs: int) -> None:
    """Let jobs succeed, one second each."""
    for _ in range(epochs):
        for running in list(driven.state.jobs.values()):
            driven.finish(running.job)


def totals(driven: Driven) -> list[int]:
    return [command.total for command in driven.sent if isinstance(command, RequestNodes)]


def releases(driven: Driven) -> list[NodeId]:
    return [node for command in driven.sent if isinstance(command, ReleaseNodes) for node in command.nodes]


def test_a_cluster_that_is_too_full_for_too_long_asks_for_as_many_nodes_as_it_needs() -> None:
    """2.9 of 3 for three seconds: five nodes would be used to 58 %, four to 72 %; asked again only when they do not come."""
    driven = scaled(2, 8, 2.9 / 6)
    run(driven, 3)
    assert not totals(driven)
    run(driven, 3)
    assert totals(driven) == [5]
    [event] = driven.emitted(ClusterScaled)
    assert (event.nodes, event.wanted, event.why) == (3, 5, "97% of what 3 nodes may spend is used")
    run(driven, 6)
    assert set(totals(driven)) == {5} and 2 <= len(totals(driven)) <= 3
    driven.tell(NodesChanged([], {N4: Member(1.0), NodeId("n5"): Member(1.0)}))
    before = len(totals(driven))
    run(driven, 12)
    assert len(totals(driven)) == before and not releases(driven)


def test_bounds_are_kept() -> None:
    """However full, no more than the most; however empty, no fewer than the least; and the least is asked for at once."""
    full = scaled(1, 3, 2.9 / 6)
    run(full, 12)
    assert not totals(full)
    empty = scaled(3, 5, 0.01)
    run(empty, 30)
    assert not releases(empty)
    few = scaled(5, 9, 0.01)
    run(few, 2)
    assert totals(few)[:1] == [5]


def test_an_empty_cluster_gives_back_one_node_after_another_each_drained_before() -> None:
    """0.6 of 3 is little: the emptiest node goes, then the next once the rest is over; one node would be too full."""
    driven = scaled(1, 5, 0.1)
    run(driven, 4)
    assert not releases(driven)
    while not releases(driven):
        run(driven, 1)
    assert releases(driven) == [N3] and N3 in driven.state.draining
    driven.tell(NodesChanged([N3]))
    assert driven.state.recovery.all_live and N3 not in driven.state.draining
    while len(releases(driven)) < 2:
        run(driven, 1)
    [_, second] = releases(driven)
    assert all(driven.place(partition) != second for partition in COUNTS)
    driven.tell(NodesChanged([second]))
    run(driven, 30)
    assert len(releases(driven)) == 2 and driven.state.recovery.all_live


def test_a_node_that_is_lost_is_asked_for_again_and_nothing_else_is_decided_in_a_recovery() -> None:
    """What is wanted stays wanted; a drain to give a node back ends with the loss."""
    driven = scaled(2, 5, 2.0 / 6)
    run(driven, 2)
    driven.tell(NodesChanged([N1]))
    assert totals(driven) == [3]
    assert not driven.state.recovery.all_live
    run(driven, 20)
    assert set(totals(driven)) == {3} and not releases(driven)


def test_a_node_that_was_drained_to_go_stays_when_others_are_lost() -> None:
    """Half of the partitions are lost while it is being emptied: it takes them, and is not given back."""
    driven = scaled(1, 5, 0.1)
    driven.tell(NodesChanged([N3]))
    driven.tell(Requested(Scale("r1", 1)))
    while driven.state.scaling.releasing is None:
        run(driven, 1)
    leaving = driven.state.scaling.releasing
    driven.tell(NodesChanged([N1 if leaving == N2 else N2]))
    assert not releases(driven) and leaving not in driven.state.draining
    run(driven, 3)
    assert driven.state.recovery.all_live and not releases(driven)


@pytest.mark.parametrize("nodes", [1, 9])
def test_a_number_outside_of_the_bounds_is_refused(nodes: int) -> None:
    """One clear line."""
    driven = scaled(2, 5, 0.1)
    driven.tell(Requested(Scale("r1", nodes)))
    assert driven.answers() == [(Verdict.REFUSED, f"{nodes} nodes are wanted; expected a number from 2 to 5, as --scale has it")]


def test_a_job_without_scale_refuses_another_number_of_nodes() -> None:
    """It has nobody to ask for nodes."""
    driven = Driven()
    driven.tell(Requested(Scale("r1", 3)))
    assert driven.answers() == [(Verdict.REFUSED, "the job runs without --scale: start it with --scale MIN..MAX")]
    run(driven, 10)
    assert not totals(driven) and not releases(driven)


def test_a_user_may_ask_for_a_number_and_it_is_reached_by_drains() -> None:
    """Two of three nodes: the emptiest is drained and given back, though nothing was too empty for long."""
    driven = scaled(1, 5, 2.0 / 6 / 2)
    run(driven, 1)
    driven.tell(Requested(Scale("r1", 2)))
    assert driven.answers() == [(Verdict.DONE, "2 nodes are wanted from now on")]
    for _ in range(8):
        run(driven, 1)
    assert releases(driven) == [N3]
    assert {driven.place(partition) for partition in COUNTS} == {N1, N2}


def test_nodes_that_others_add_are_wanted_too_up_to_the_bound() -> None:
    """Who adds a node by hand does not see it drained at once."""
    driven = scaled(1, 4, 2.4 / 6)
    run(driven, 2)
    driven.tell(NodesChanged([], {N4: Member(1.0)}))
    assert driven.state.scaling.wanted == 4
    driven.tell(NodesChanged([], {NodeId("n5"): Member(1.0)}))
    assert driven.state.scaling.wanted == 4
    run(driven, 8)
    assert len(releases(driven)) == 1
