"""The telemetry log: bounded by size, and its readers follow."""

from pathlib import Path

from resurge.dashboard.following import LogFollower
from resurge.telemetry.events import EpochFinished, JobStarted
from resurge.telemetry.log import OLDER_KEPT, TelemetryLog, log_files, read_events
from tests.support.telemetry import epoch, started

LIMIT_BYTES = 2000


def write(path: Path, epochs: range) -> None:
    with TelemetryLog(path, LIMIT_BYTES) as log:
        if not path.stat().st_size:
            log.write(started())
        for number in epochs:
            log.write(epoch(number))


def numbers(events) -> list[int]:
    return [event.epoch for event in events if isinstance(event, EpochFinished)]


def test_a_full_log_is_rotated_and_read_as_one(tmp_path: Path) -> None:
    """No file is larger than the limit, and nothing is missing while all files are kept."""
    path = tmp_path / "telemetry.jsonl"
    write(path, range(1, 10))
    assert len(log_files(path)) > 1
    assert all(file.stat().st_size <= LIMIT_BYTES for file in log_files(path))
    assert numbers(read_events(path)) == list(range(1, 10))


def test_the_oldest_events_are_dropped_but_not_how_the_job_began(tmp_path: Path) -> None:
    """The size is bounded however long the job runs; what is left is the newest, without a gap."""
    path = tmp_path / "telemetry.jsonl"
    for first in range(1, 200, 20):
        write(path, range(first, first + 20))
    kept = list(read_events(path))
    assert isinstance(kept[0], JobStarted)
    assert sum(isinstance(event, JobStarted) for event in kept) == 1
    assert numbers(kept) == list(range(numbers(kept)[0], 201))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= (OLDER_KEPT + 2) * LIMIT_BYTES


def test_a_reader_that_follows_the_log_misses_nothing(tmp_path: Path) -> None:
    """Neither what was rotated before it came nor what is rotated while it reads."""
    path = tmp_path / "telemetry.jsonl"
    write(path, range(1, 8))
    follower, seen = LogFollower(path), []
    for first in range(8, 60, 2):
        seen += follower.poll()
        write(path, range(first, first + 2))
    while added := follower.poll():
        seen += added
    follower.close()
    assert numbers(seen) == list(range(1, 60))
