"""The heartbeat time-out, and what becomes of one that was lost and is there again: without Spark."""

import threading

import pytest

from resurge.errors import JobError
from resurge.model.names import NodeId
from resurge.runtime.driver.session import _settings, heartbeat_settings
from resurge.runtime.driver.warming import Warming
from resurge.runtime.embedded_cluster.standalone import cluster_settings
from tests.support.processes import wait_until

NODE = NodeId("7")
OTHER = NodeId("8")


@pytest.mark.parametrize(("heartbeat_timeout_s", "heartbeat"), [(1.0, "100ms"), (20, "2000ms"), (600.0, "10000ms")])
def test_several_heartbeats_must_be_missing(heartbeat_timeout_s: float, heartbeat: str) -> None:
    """One that is late does not cost a node; the check is as frequent as the heartbeat."""
    settings = heartbeat_settings(heartbeat_timeout_s)
    assert settings["spark.executor.heartbeatInterval"] == settings["spark.network.timeoutInterval"] == heartbeat
    assert settings["spark.storage.blockManagerHeartbeatTimeoutMs"] == f"{heartbeat_timeout_s * 1000:.0f}ms"


@pytest.mark.parametrize("heartbeat_timeout_s", [0, -1, 0.5, float("inf"), float("nan")])
def test_a_time_out_in_which_no_heartbeat_fits_is_refused(heartbeat_timeout_s: float) -> None:
    """The error says what was expected and what came."""
    with pytest.raises(JobError, match="expected at least 1"):
        heartbeat_settings(heartbeat_timeout_s)


def test_sessions_on_any_cluster_have_a_heartbeat_time_out_and_keep_the_network_time_out() -> None:
    """A session in one process has nobody to watch."""
    for settings in (_settings("spark://far:7077"), _settings("yarn"), cluster_settings(heartbeat_timeout_s=20)):
        assert settings.items() >= heartbeat_settings(20).items()
        assert not {"spark.network.timeout", "spark.rpc.askTimeout"} & settings.keys()
    assert not _settings("local[*]").keys() & heartbeat_settings().keys()


def test_a_node_that_was_lost_and_is_there_again_is_cold() -> None:
    """Whether it was seen to be gone between two jobs or during one."""
    warmed: list[NodeId] = []
    warming = Warming(warmed.append)
    for lose, named in ((warming.track, OTHER), (warming.forget, NODE)):
        warming.track([NODE, OTHER])
        wait_until(lambda: warming.warm == [NODE, OTHER], "warm nodes", 10)
        count = warmed.count(NODE)
        lose([named])
        assert warming.warm == [OTHER]
        warming.track([NODE, OTHER])
        wait_until(lambda: warming.warm == [NODE, OTHER], "warm nodes", 10)
        assert warmed.count(NODE) == count + 1
    assert warmed.count(OTHER) == 1


def test_warming_that_ends_after_its_node_was_lost_does_not_count() -> None:
    """The task ran on what is no longer there."""
    gates = [threading.Event(), threading.Event()]
    begun: list[threading.Event] = []
    ended: list[threading.Event] = []

    def warm(node: NodeId) -> None:
        gate = gates[len(begun)]
        begun.append(gate)
        gate.wait(10)
        ended.append(gate)

    warming = Warming(warm)
    for attempts in (1, 2):
        warming.track([NODE])
        wait_until(lambda count=attempts: len(begun) == count, "an attempt", 10)  # type: ignore[misc]
        if attempts == 1:
            warming.forget([NODE])
    gates[0].set()
    wait_until(lambda: ended == gates[:1], "the end of the first attempt", 10)
    assert warming.warm == []
    gates[1].set()
    wait_until(lambda: warming.warm == [NODE], "a warm node", 10)


def test_a_node_that_fails_to_warm_is_tried_again() -> None:
    """A node that is there is not given up."""
    failures = iter([JobError("the node died"), None])

    def warm(node: NodeId) -> None:
        failure = next(failures)
        if failure is not None:
            raise failure

    warming = Warming(warm)

    def is_warm() -> bool:
        warming.track([NODE])
        return warming.warm == [NODE]

    wait_until(is_warm, "a warm node", 10)
