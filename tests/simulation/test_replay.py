"""The coordinator is a function: the inputs of a run, handled again, give the same commands and states."""

import subprocess
import sys

import pytest

from resurge.coordinator.canonical import digest
from resurge.coordinator.handle import handle
from resurge.coordinator.input_log import MAGIC, Entry, Handled, began, block, ended, entries, handled
from resurge.coordinator.inputs import Tick
from resurge.coordinator.replay import replayed
from resurge.coordinator.scheduling import STRATEGIES
from resurge.errors import CorruptFileError
from resurge.simulator.driver import Driver
from resurge.simulator.simulation import simulate

SEEDS = 24
HASHED = """
from resurge.coordinator.canonical import digest
from resurge.simulator.simulation import simulate
for seed in range(6):
    drivers = [*simulate("random", seed).drivers, *simulate("elastic", seed).drivers]
    print(digest([(driver.recorded, driver.sent, driver.state) for driver in drivers]))
"""


def logged(driver: Driver) -> bytes:
    """A driver's inputs as its log would have them."""
    entries: list[Entry] = [began(0.0, driver.first)]
    state = driver.first
    for (at_s, event), wanted in zip(driver.recorded, driver.sent, strict=True):
        state, sent = handle(state, event, at_s)
        assert sent == wanted
        entries.append(handled(at_s, event, sent, state))
    assert state == driver.state
    return MAGIC + b"".join(block(part) for part in (entries[:7], entries[7:], [ended(driver.env.now, state)]) if part)


def assert_replays(driver: Driver) -> None:
    """Handle everything that a driver was handled once more, from its log."""
    *_, last = found = list(replayed(entries(logged(driver))))
    assert [step.difference for step in found if step.difference] == []
    assert [step.event for step in found if step.event is not None] == [event for _, event in driver.recorded]
    assert [step.commands for step in found if step.event is not None] == driver.sent
    assert last.state == driver.state
    assert digest(last.state) == digest(driver.state)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_schedule_can_be_replayed_from_its_inputs(strategy: str) -> None:
    """The same commands after every input, and the same state at the end, for every driver of a run."""
    for seed in range(SEEDS):
        for driver in simulate("random", seed, strategy, is_checked=False).drivers:
            assert_replays(driver)
    for seed in range(SEEDS // 4):
        for scenario in ("elastic", "crowded"):
            for driver in simulate(scenario, seed, strategy, is_checked=False).drivers:
                assert_replays(driver)


def test_nothing_depends_on_the_order_of_a_set() -> None:
    """Processes that hash texts differently run the same schedules alike."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", HASHED], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 6


def test_a_digest_tells_states_apart() -> None:
    """Equal states have equal digests, and one input more shows."""
    driver = simulate("random", 3).drivers[-1]
    assert digest(driver.state) == digest(driver.state)
    assert digest(driver.first) != digest(driver.state)


def test_the_first_input_that_is_decided_otherwise_is_named() -> None:
    """Another input in the middle: what came before is the same, and nothing after it is looked at."""
    log = list(entries(logged(simulate("random", 3).drivers[0])))
    number = next(index for index, entry in enumerate(log) if isinstance(entry, Handled) and "run" in "".join(entry.decided))
    changed = log[number]
    assert isinstance(changed, Handled)
    log[number] = Handled(changed.at_s, Tick(), changed.decided, changed.mark)
    *before, last = replayed(log)
    assert not [step.difference for step in before if step.difference]
    assert last.number == number
    assert "logged was: " in last.difference


def test_a_log_that_was_torn_ends_before_the_tear_and_one_that_was_altered_is_refused() -> None:
    """A driver that is killed may leave half a block at the end, and nowhere else."""
    content = logged(simulate("random", 3).drivers[0])
    whole = list(entries(content))
    assert list(entries(content[:-3])) == whole[:-1]
    altered = bytearray(content)
    altered[len(MAGIC) + 20] ^= 1
    with pytest.raises(CorruptFileError, match="checksum"):
        list(entries(bytes(altered)))
    with pytest.raises(CorruptFileError, match="no log of inputs"):
        list(entries(b"something else"))
