"""Chaos that also asks for moves and drains."""

from resurge.experiments import chaos
from resurge.experiments.asking import Asking
from resurge.experiments.failure_schedules import FailureSchedules
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.runner import Member
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner


def test_a_job_that_is_asked_for_moves_and_drains_shows_the_same() -> None:
    """Nothing lost, nothing repeated, and something did move."""
    wanted = chaos.execute(InlineRunner(2), "incremental")
    telemetry, asking = TelemetryLog(), list[Asking]()

    def prepare(engine: Engine) -> None:
        asking.append(Asking(engine, ("move", "move", "move", "drain"), 3))
        telemetry.listeners.append(asking[0].listen)

    runner = InlineRunner(nodes={f"n{number}": Member(8) for number in range(3)})
    got = chaos.execute(runner, "incremental", telemetry, prepare=prepare)
    assert chaos.compare(got, wanted) == (0, 0)
    assert asking[0].asked and asking[0].moved


def test_requests_are_no_strikes_at_nodes() -> None:
    """Asked for moves only, no node is struck; asked for more, strikes are drawn from the others."""
    assert FailureSchedules(12, 4, faults=("move", "drain")).strikes(1) == []
    strikes = FailureSchedules(12, 4, faults=("kill", "move")).strikes(1)
    assert strikes == FailureSchedules(12, 4).strikes(1) and {strike.fault for strike in strikes} == {"kill"}
