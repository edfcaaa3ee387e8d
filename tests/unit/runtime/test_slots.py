"""Which slot runs which key group."""

from resurge.model.names import NodeId
from resurge.runtime.driver.job_plans import Slots


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
    assert [slots.of(NodeId("b"), group) for group in range(4)] == [1, 3, 1, 3]


def test_a_plan_does_not_look_at_all_slots_for_every_partition() -> None:
    """With 256 slots and thousands of partitions that would take longer than the epoch."""
    slots = Slots(CountedNodes(map(NodeId, "ab" * 128)), {})
    for group in range(1000):
        slots.of(NodeId("a"), group)
    assert CountedNodes.looks == 1
