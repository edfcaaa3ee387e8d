"""When to checkpoint, which checkpoint a restart may trust, what may be forgotten."""

import pytest

from resurge.protocols.checkpoint import CheckpointRecord, candidates, is_due, retention


def record(epoch: int, generation: int = 1) -> CheckpointRecord:
    return CheckpointRecord(epoch, f"checkpoints/{epoch}-{generation}.json", epoch * 7 + generation)


@pytest.mark.parametrize(
    ("epoch", "interval", "last", "due"),
    [(10, 10, 0, True), (9, 10, 0, False), (11, 10, 0, True), (11, 10, 10, False), (20, 10, 10, True), (1, 1, 0, True)],
)
def test_a_checkpoint_is_due_an_interval_after_the_last(epoch, interval, last, due):
    """Counted from the last checkpoint, so one that was missed is caught up at the next epoch."""
    assert is_due(epoch, interval, last) is due


@pytest.mark.parametrize("epoch", [1, 10, 1_000_000])
def test_an_interval_of_zero_switches_checkpoints_off(epoch):
    """However long the job runs."""
    assert not is_due(epoch, 0, 0)


def test_a_restart_tries_the_newest_checkpoint_first():
    """Whatever the order of the journal."""
    assert [r.epoch for r in candidates([record(4), record(12), record(8)])] == [12, 8, 4]
    assert candidates([]) == []


def test_a_checkpoint_that_was_published_again_replaces_the_earlier_of_its_epoch():
    """After a fallback, the same epoch is checkpointed by a later generation."""
    assert candidates([record(4), record(8, 1), record(8, 2)]) == [record(8, 2), record(4)]


def test_retention_keeps_the_newest_and_every_epoch_after_the_oldest_kept():
    """A restart from the oldest kept checkpoint needs the journal from the next epoch on."""
    kept = retention([record(4), record(8), record(12)], 2)
    assert kept.kept == (record(12), record(8))
    assert kept.dropped == (record(4),)
    assert kept.first_epoch == 9


def test_retention_of_one_needs_only_what_follows_the_newest():
    """The smallest store."""
    kept = retention([record(4), record(8)], 1)
    assert (kept.kept, kept.dropped, kept.first_epoch) == ((record(8),), (record(4),), 9)


def test_without_checkpoint_nothing_is_forgotten():
    """The journal is needed from the first epoch."""
    assert retention([], 2).first_epoch == 1


def test_until_there_are_as_many_checkpoints_as_are_kept_the_beginning_is_the_fallback():
    """With two kept, the first checkpoint's predecessor is the empty state, which needs the journal from epoch 1."""
    assert retention([record(4)], 2).first_epoch == 1
