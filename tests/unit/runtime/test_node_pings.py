"""When a node counts as heard; questions and answers are scripted here, a real cluster is asked in the tests on Spark."""

from types import SimpleNamespace

from resurge.model.names import NodeId
from resurge.runtime.driver.node_pings import NodePings

NODE = NodeId("1")


def pings(*answers: str) -> NodePings:
    """Pings to a node whose questions come to these ends, one after another."""
    left = iter([SimpleNamespace(toString=answer.__str__) for answer in answers])
    address = SimpleNamespace(ask=lambda *given: next(left))
    made = NodePings.__new__(NodePings)
    made._nodes = SimpleNamespace(
        getExecutorEndpointRef=lambda name: SimpleNamespace(isDefined=lambda: True, get=lambda: address)
    )
    made._addresses, made._asked = {}, {}
    made._question = made._timeout = made._any = None
    return made


def test_a_node_is_heard_when_it_answers() -> None:
    """And when it is asked for the first time."""
    asked = pings("Future(Success(None))", "Future(Success(None))", "Future(<not completed>)")
    assert [NODE in asked.heard([NODE]) for _ in range(5)] == [True, True, True, False, False]


def test_a_question_that_cannot_be_delivered_is_no_answer() -> None:
    """A node that is cut off refuses every question at once; it answers as little as one that hangs."""
    asked = pings(*["Future(Failure(java.net.ConnectException))"] * 5)
    assert [NODE in asked.heard([NODE]) for _ in range(4)] == [True, False, False, False]


def test_a_node_that_is_gone_is_a_new_one_when_it_comes_again() -> None:
    """Its old question says nothing."""
    asked = pings("Future(<not completed>)", "Future(<not completed>)")
    assert NODE in asked.heard([NODE])
    assert asked.heard([]) == frozenset()
    assert NODE in asked.heard([NODE])
