"""The coordinator is a function: the inputs of a run, handled again, give the same commands and states."""

import subprocess
import sys

import msgspec
import pytest

from resurge.coordinator.canonical import digest
from resurge.coordinator.handle import handle
from resurge.coordinator.inputs import Input
from resurge.coordinator.scheduling import STRATEGIES
from resurge.simulator.driver import Driver
from resurge.simulator.run import simulate

SEEDS = 60
HASHED = """
from resurge.coordinator.canonical import digest
from resurge.simulator.run import simulate
for seed in range(12):
    drivers = [*simulate("random", seed).drivers, *simulate("elastic", seed).drivers]
    print(digest([(driver.recorded, driver.sent, driver.state) for driver in drivers]))
"""


def replayed(driver: Driver) -> None:
    """Handle everything that a driver was told once more, from written inputs."""
    state = driver.first
    for (at_s, event), wanted in zip(driver.recorded, driver.sent, strict=True):
        read = msgspec.json.decode(msgspec.json.encode(event), type=Input)
        state, sent = handle(state, read, at_s)
        assert sent == wanted
    assert state == driver.state


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_schedule_can_be_replayed_from_its_inputs(strategy: str) -> None:
    """The same commands after every input, and the same state at the end, for every driver of a run."""
    for seed in range(SEEDS):
        for driver in simulate("random", seed, strategy, is_checked=False).drivers:
            replayed(driver)
    for seed in range(SEEDS // 4):
        for driver in simulate("elastic", seed, strategy, is_checked=False).drivers:
            replayed(driver)


def test_nothing_depends_on_the_order_of_a_set() -> None:
    """Processes that hash texts differently run the same schedules alike."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", HASHED], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 12


def test_a_digest_tells_states_apart() -> None:
    """Equal states have equal digests, and one input more shows."""
    driver = simulate("random", 3).drivers[-1]
    assert digest(driver.state) == digest(driver.state)
    assert digest(driver.first) != digest(driver.state)
