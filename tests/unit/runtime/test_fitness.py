"""Nodes that cannot run the job's tasks are refused by name, and told once."""

import msgspec
import pytest

from resurge.errors import EngineError, UnfitNodeError
from resurge.model.names import NodeId
from resurge.protocols import retrying
from resurge.runtime.driver.warming import Warming
from resurge.runtime.worker.fitness import FIELDS, misfits, own_fitness
from tests.support.processes import wait_until

NODE = NodeId("7")


@pytest.mark.parametrize("field", FIELDS)
def test_every_difference_is_named_with_what_was_expected(field: str) -> None:
    """Python, Polars, PyArrow, Resurge, its code and the key hash."""
    mine = own_fitness()
    assert misfits(mine, mine) == []
    other = msgspec.structs.replace(mine, **{field: "9.9"})
    assert misfits(mine, other) == [f"{FIELDS[field]} is 9.9, expected {getattr(mine, field)}"]


def test_the_host_and_the_executor_may_differ() -> None:
    """They do on every node."""
    mine = own_fitness()
    assert misfits(mine, msgspec.structs.replace(mine, host="far", executor="3")) == []


def test_an_unfit_node_is_refused_at_once_and_is_new_when_it_comes_again() -> None:
    """Trying again would not help, until the node was lost and another has its name."""
    told: list[str] = []
    warmed: list[NodeId] = []

    def warm(node: NodeId) -> None:
        warmed.append(node)
        if len(warmed) == 1:
            raise UnfitNodeError("node 7 is refused: Polars is 0.1, expected 0.2")

    warming = Warming(warm, told.append)
    warming.track([NODE])
    wait_until(lambda: bool(told), "a refusal", 10)
    warming.track([NODE])
    assert warming.refused == {NODE: "node 7 is refused: Polars is 0.1, expected 0.2"}
    assert (len(warmed), warming.warm) == (1, [])
    warming.track([])
    assert warming.refused == {}
    warming.track([NODE])
    wait_until(lambda: warming.warm == [NODE], "a warm node", 10)
    assert len(told) == 1


def test_a_node_that_never_gets_warm_is_refused_after_some_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one without Python; otherwise it would be tried for ever."""
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)
    attempts: list[NodeId] = []
    told: list[str] = []

    def warm(node: NodeId) -> None:
        attempts.append(node)
        raise EngineError("Cannot run program python3")

    warming = Warming(warm, told.append)
    warming.track([NODE])
    wait_until(lambda: bool(told), "a refusal", 10)
    assert told == ["node 7 could not be warmed: Cannot run program python3"]
    assert len(attempts) == retrying.MOST_RETRIES + 1
