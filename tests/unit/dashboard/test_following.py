"""Following a telemetry log while it is written, replaced and cut off."""

from resurge.dashboard.following import LogFollower
from resurge.telemetry.events import EpochFinished
from resurge.telemetry.log import TelemetryLog
from tests.support.telemetry import epoch, started


def numbers(follower: LogFollower) -> list[int]:
    """The epochs that were added."""
    return [event.epoch for event in follower.poll() if isinstance(event, EpochFinished)]


def test_each_event_comes_once(tmp_path):
    """What is there first, then what is added; before the file exists, nothing."""
    follower = LogFollower(tmp_path / "log.jsonl")
    assert follower.poll() == []
    with TelemetryLog(tmp_path / "log.jsonl") as log:
        log.write(started())
        log.write(epoch(1))
        assert numbers(follower) == [1]
        assert follower.poll() == []
        log.write(epoch(2))
        assert numbers(follower) == [2]


def test_half_a_line_waits_for_its_other_half(tmp_path):
    """A reader that looks while the driver writes sees the event with the next look."""
    path = tmp_path / "log.jsonl"
    with TelemetryLog(path) as log:
        log.write(epoch(1))
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    follower = LogFollower(path)
    assert follower.poll() == []
    with path.open("ab") as file:
        file.write(whole[40:])
    assert numbers(follower) == [1]


def test_line_of_a_newer_version_is_left_out(tmp_path):
    """An event that this version does not know does not end the page."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"type":"SomethingNew","at_s":1}\nnot json\n')
    with TelemetryLog(path) as log:
        log.write(epoch(3))
    assert numbers(LogFollower(path)) == [3]


def test_file_that_is_replaced_is_read_to_its_end_first(tmp_path):
    """A log that is rotated loses nothing."""
    path = tmp_path / "log.jsonl"
    follower = LogFollower(path)
    with TelemetryLog(path) as log:
        log.write(epoch(1))
        assert numbers(follower) == [1]
        log.write(epoch(2))
        path.rename(tmp_path / "log.1.jsonl")
        with TelemetryLog(path) as newer:
            newer.write(epoch(3))
            assert numbers(follower) == [2]
            assert numbers(follower) == [3]
