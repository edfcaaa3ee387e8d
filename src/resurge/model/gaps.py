"""Epochs that a partition has skipped for good."""

import msgspec


class Gap(msgspec.Struct, frozen=True):
    """What one partition has skipped, in all: the first and the last epoch, how many, and the rows that the sources had in them.

    >>> Gap(3, 7, 5, 50).followed_by(Gap(20, 21, 2, 10))
    Gap(first=3, last=21, epochs=7, rows=60)
    """

    first: int
    last: int
    epochs: int
    rows: int

    def followed_by(self, later: "Gap") -> "Gap":
        """Both of them."""
        return Gap(self.first, later.last, self.epochs + later.epochs, self.rows + later.rows)
