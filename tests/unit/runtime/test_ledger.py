"""What a restarted driver may believe to have been shown."""

from resurge.model.names import KeyGroup, Partition
from resurge.runtime.driver.ledger import shown_epochs
from resurge.runtime.storage.journal import CatchUpCommitted, DriverStarted, EpochCommitted

P, Q = Partition("p", KeyGroup(0)), Partition("q", KeyGroup(0))


def test_the_newest_commit_of_a_driver_may_not_have_been_shown() -> None:
    """It was logged before it was shown."""
    records = [DriverStarted(1), EpochCommitted(1, {}, []), EpochCommitted(2, {}, [])]
    assert shown_epochs([P], records, 0) == ({P: 1}, 1)


def test_a_later_driver_that_ran_without_a_partition_makes_nothing_certain_for_it() -> None:
    """The first driver died before it showed epoch 1; the second had no room for p: p must still show epoch 1."""
    second = [DriverStarted(2), EpochCommitted(2, {}, [], ["p/0"]), EpochCommitted(3, {}, [], ["p/0"])]
    shown, _ = shown_epochs([P, Q], [DriverStarted(1), EpochCommitted(1, {}, []), *second], 0)
    assert shown == {P: 0, Q: 2}


def test_catching_up_again_makes_it_certain() -> None:
    """The second driver showed epoch 1 before it went on."""
    second = [DriverStarted(2), CatchUpCommitted(1, {"p/0": 1}, []), EpochCommitted(2, {}, [], ["p/0"])]
    shown, _ = shown_epochs([P], [DriverStarted(1), EpochCommitted(1, {}, []), *second], 0)
    assert shown == {P: 1}
