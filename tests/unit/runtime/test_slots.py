"""Which slot runs which partition."""

from collections import Counter

import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.posts import posts
from resurge.connectors.sinks import DiscardSink
from resurge.model.names import NodeId
from resurge.model.work import Job
from resurge.operators.aggregates import count, max_
from resurge.operators.program import Program, compile_topology
from resurge.runtime.driver.membership import Membership
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.slot_sharing import SlotSharing, uneven
from resurge.runtime.driver.slots import LEAST_CHAINS_PER_SLOT, Slots
from resurge.runtime.worker.messages import JobPlan, SlotReport, SlotWork
from resurge.testing.inline_runner import InlineRunner


class CountedNodes(tuple[NodeId, ...]):
    """Nodes that count how often somebody looks at all of them."""

    looks = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        """Count."""
        CountedNodes.looks += 1
        return super().__iter__()


def test_key_groups_are_shared_out_among_the_slots_of_their_node() -> None:
    """In turn, by number."""
    slots = Slots(tuple(map(NodeId, "abab")), {})
    assert [slots.of(NodeId("b"), "count", group) for group in range(4)] == [1, 3, 1, 3]


def test_a_plan_does_not_look_at_all_slots_for_every_partition() -> None:
    """With 256 slots and thousands of partitions that would take longer than the epoch."""
    slots = Slots(CountedNodes(map(NodeId, "ab" * 128)), {})
    for group in range(1000):
        slots.of(NodeId("a"), "count", group)
    assert CountedNodes.looks == 1


def many_counts(operators: int) -> Program:
    """So many counts over one stream, each with a count of its counts in the same task."""
    job = TopologyBuilder("many", key_groups=4)
    rows = job.source("rows", posts(10.0))
    for number in range(operators):
        counts = rows.aggregate(f"count{number}", key="user", n=count())
        counts.aggregate(f"again{number}", key="user", most=max_("n")).query(sink=DiscardSink())
    return compile_topology(job.build())


def chain_numbers(program: Program) -> dict[str, tuple[int, int]]:
    return {name: (number, len(chains)) for chains in program.chains() for number, mine in enumerate(chains) for name in mine}


def test_operators_that_read_each_other_in_one_task_are_one_chain() -> None:
    """They must run in the same slot."""
    chains = many_counts(3).chains()
    assert [sorted(map(sorted, mine)) for mine in chains if mine] == [[[f"again{n}", f"count{n}"] for n in range(3)]]


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_many_operators_have_a_slot_each_with_all_of_their_key_groups(cores: int) -> None:
    """So that each is called once on a node; with one less, all slots call each of them."""
    node = NodeId("a")
    for operators, is_apart in ((LEAST_CHAINS_PER_SLOT * cores, True), (LEAST_CHAINS_PER_SLOT * cores - 1, cores == 1)):
        slots = Slots((node,) * cores, {}, chain_numbers(many_counts(operators)))
        names = [f"{name}{number}" for name in ("count", "again") for number in range(operators)]
        used = {name: frozenset(slots.of(node, name, group) for group in range(4)) for name in names}
        assert all(used[f"again{number}"] == used[f"count{number}"] for number in range(operators))
        assert {len(mine) for mine in used.values()} == {1 if is_apart else cores}
        if is_apart:
            assert set(Counter(used.values()).values()) == {2 * operators // cores}


def test_the_busiest_slot_is_compared_with_its_own_node() -> None:
    """Between nodes the balancer moves load; what is read is nobody's."""
    slots = [SlotWork(node, [], [], []) for node in "aabb"]
    plan = JobPlan("job", "attempt", 1, [], slots, {}, "")
    took = {0: 3.0, 1: 1.0, 2: 9.0, 3: 9.0}
    reports = [SlotReport(slot, 1, cpu_s=value) for slot, value in took.items()] + [SlotReport(1, 0, cpu_s=100.0)]
    assert uneven(plan, reports) == pytest.approx(1.5) and uneven(plan, []) == 1.0


def sharing(operators: int) -> SlotSharing:
    """A job on one node of two cores."""
    membership = Membership(InlineRunner(2), RunOptions("unused"))
    membership.first()
    return SlotSharing(membership, many_counts(operators))


def test_slots_go_back_to_sharing_key_groups_if_one_operator_is_too_much_for_its_slot() -> None:
    """For good: the other way round would be as uneven again. One long epoch decides nothing."""
    nodes = frozenset(InlineRunner(2).members())
    job, learns = Job("attempt", (1,), (), nodes), sharing(2 * LEAST_CHAINS_PER_SLOT)
    [node] = nodes
    plan = JobPlan("job", "attempt", 1, [], [SlotWork(node, [], [], [])] * 2, {}, "")
    for epoch in range(40):
        busy = [2.0, 1.0] if epoch != 20 else [50.0, 1.0]
        learns.observe(plan, [SlotReport(slot, 1, cpu_s=took) for slot, took in enumerate(busy)], 10_000, 0)
    assert learns.slots(job).chains
    for _ in range(20):
        learns.observe(plan, [SlotReport(slot, 1, cpu_s=took) for slot, took in enumerate([10.0, 1.0])], 10_000, 0)
    assert not learns.slots(job).chains
