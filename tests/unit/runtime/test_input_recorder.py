"""A driver's inputs, as it records them and as they are replayed."""

import re
from pathlib import Path

from typer.testing import CliRunner

from resurge.cli import main
from resurge.coordinator.handle import handle
from resurge.coordinator.input_log import MAGIC, Handled, block, entries
from resurge.coordinator.replay import Replayed, replayed
from resurge.runtime.driver.input_recorder import InputRecorder, older
from resurge.simulator.simulation import simulate
from resurge.testing.inline_runner import InlineRunner
from tests.support import crash_job


def replayed_file(path: Path) -> list[Replayed]:
    """Everything in a log, handled again."""
    return list(replayed(entries(path.read_bytes())))


def test_a_run_replays_to_the_state_in_which_it_ended(tmp_path: Path) -> None:
    """The engine itself, with checkpoints and a drain: the same commands after every input, and the same digest at the end."""
    crash_job.write_input(tmp_path, epochs=4)
    crash_job.run(tmp_path, InlineRunner(2))
    found = replayed_file(tmp_path / "telemetry.inputs")
    assert not [step.difference for step in found if step.difference]
    assert found[-1].event is None, "expected the log to have an orderly end"
    assert found[-1].state.recovery.head == found[-1].state.recovery.checkpoint == 5


def test_every_log_is_complete_in_itself_and_the_oldest_are_dropped(tmp_path: Path) -> None:
    """A log that is full is renamed; the next begins with the state that the full one ends with."""
    driver = simulate("random", 5).drivers[0]
    path = tmp_path / "small.inputs"
    said: list[str] = []
    for _ in range(2):
        # A second driver leaves the log of the first alone: its end may be torn.
        recorder = InputRecorder(path, said.append, limit_bytes=4_000)
        recorder.began(0.0, driver.first)
        state = driver.first
        for at_s, event in driver.recorded:
            state, commands = handle(state, event, at_s)
            recorder.handled(at_s, event, commands, state)
        recorder.close(driver.recorded[-1][0], state)
    assert said == []
    kept = [path, older(path, 1)]
    for each in kept:
        assert not [step.difference for step in replayed_file(each) if step.difference]
    assert replayed_file(path)[-1].state == driver.state
    assert path.stat().st_mode & 0o077 == 0, "expected a log for its owner alone"


def test_a_log_that_cannot_be_written_is_given_up_and_said_once(tmp_path: Path) -> None:
    """The job goes on without it."""
    (tmp_path / "file").write_text("")
    said: list[str] = []
    driver = simulate("random", 5).drivers[0]
    recorder = InputRecorder(tmp_path / "file" / "telemetry.inputs", said.append)
    recorder.began(0.0, driver.first)
    recorder.close(1.0, driver.first)
    (warning,) = said
    assert "not recorded any more" in warning


def test_the_command_says_that_all_is_the_same_and_shows_what_was_decided(tmp_path: Path) -> None:
    """With the table, until an input, and input by input."""
    crash_job.write_input(tmp_path, epochs=3)
    crash_job.run(tmp_path, InlineRunner(2))
    main.register()
    cli, log = CliRunner(), str(tmp_path / "telemetry.inputs")
    said = cli.invoke(main.app, ["replay", log])
    assert said.exit_code == 0, said.output
    assert re.search(r"\d+ inputs in .* s: the same commands and states", said.output)
    assert "head 4, checkpoint 4" in said.output
    table = cli.invoke(main.app, ["replay", log, "--table"]).output
    assert "live epoch 1" in table
    assert "log the commit of epoch 1" in table
    assert "waits for g1a" in table
    until = cli.invoke(main.app, ["replay", log, "--until", "5", "--step"]).output
    assert "command: Plan" in until
    assert "live epoch 2" not in until
    refused = cli.invoke(main.app, ["replay", log, "--until", "noon"])
    assert refused.exit_code == 2


def test_the_command_names_the_input_that_is_decided_otherwise(tmp_path: Path) -> None:
    """It ends there, with what is decided now and what was logged."""
    crash_job.write_input(tmp_path, epochs=2)
    crash_job.run(tmp_path, InlineRunner(2))
    log = list(entries((tmp_path / "telemetry.inputs").read_bytes()))
    number = next(index for index, entry in enumerate(log) if isinstance(entry, Handled) and entry.decided)
    handled = log[number]
    assert isinstance(handled, Handled)
    log[number] = Handled(handled.at_s, handled.event, ["something else"], handled.mark)
    (tmp_path / "other.inputs").write_bytes(MAGIC + block(log))
    said = CliRunner().invoke(main.app, ["replay", str(tmp_path / "other.inputs")])
    assert said.exit_code == 1
    assert f"input {number} of" in said.output
    assert "something else" in said.output
