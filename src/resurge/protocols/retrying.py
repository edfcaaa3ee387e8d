"""How often a job that came to nothing without a lost node is tried again, and after which pause."""

MOST_RETRIES = 6
FIRST_PAUSE_S = 0.1


def pause_s(failures: int) -> float | None:
    """The pause before the next attempt after so many failures in a row; None if there is to be no other attempt.

    >>> [pause_s(failures) for failures in (1, 2, 6, 7)]
    [0.1, 0.2, 3.2, None]
    """
    return FIRST_PAUSE_S * 2 ** (failures - 1) if failures <= MOST_RETRIES else None
