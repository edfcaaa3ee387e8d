"""Which nodes a case kills."""

from resurge.model.names import NodeId
from resurge.studies.failure_cases import DOWNSTREAM, UPSTREAM, FailureCase
from resurge.studies.figures import nodes_to_kill
from tests.unit.protocols.test_recovery import N1, N2, N3, N4, whole


def test_some_query_is_left_alone_whenever_that_can_be() -> None:
    """Three of four die: what is left is lone's node, because the other query needs three; if two die, either's."""
    chosen = {tuple(sorted(nodes_to_kill(whole(), FailureCase("s", "incremental", 3, ()), seed))) for seed in range(20)}
    assert chosen == {(N1, N2, N3)}
    assert len({tuple(nodes_to_kill(whole(), FailureCase("s", "incremental", 2, ()), seed)) for seed in range(20)}) > 1


def test_the_same_seed_kills_the_same_nodes() -> None:
    """And in a place, those with the upper end of the topology come first, or last."""

    def killed(place: str) -> list[NodeId]:
        case = FailureCase("s", "incremental", 2, (), place)
        assert nodes_to_kill(whole(), case, 3) == nodes_to_kill(whole(), case, 3)
        return sorted(nodes_to_kill(whole(), case, 3))

    assert killed(UPSTREAM) == [N1, N4]
    assert killed(DOWNSTREAM) == [N2, N3]
