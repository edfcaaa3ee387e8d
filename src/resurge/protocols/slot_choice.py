"""Whether the live epochs of a job on one node are so small that one slot does them sooner than all slots. Pure.

A job in one slot is one task: it has no shuffle, and each operator is called once. Spreading an epoch over all slots costs
Spark another stage and more tasks, some 20 ms, and pays only if the tasks have more to do than that.
"""

from typing import NamedTuple

MOST_CPU_S = 0.05
"""Epochs come together if one slot is expected to take at most so much for each."""
TOO_MUCH_CPU_S = 0.07
"""They are spread over all slots again if they take more than this: the choice does not alternate where it makes no difference."""
ONE_SLOT_SHARE = 0.7
"""One slot takes about this part of what all slots take together: each of them prepares a batch, reads the state and sends packets."""
MOST_COLD_CPU_S = 0.5
"""As long as processes warm up, a small epoch may take so much."""
MOST_STATE_BYTES = 1024**3
"""A larger state stays with the slots that have it, which merge and save its parts side by side."""
STATE_BYTES_PER_EPOCH = 2 * 1024**2
"""To bring a state together is to write it anew: epochs must have been small for one more epoch per so much of it. At some
hundred megabytes per second, that is half of what these epochs would have saved."""
_WEIGHT_OF_NEWEST = 0.1
_LEAST_EPOCHS = 20
_COLD_EPOCHS, _MOST_COLD_ROWS = 8, 10_000
_MORE_ROWS = 1.5
"""An epoch with so many times the usual rows is another load, not a long epoch among others."""
_LONG_EPOCH = 2.0
"""A long epoch among others, such as one that merges, counts for at most so many times what an epoch may take."""


class Load(NamedTuple):
    """How live epochs run, and moving averages of what they had and took since that last changed.

    `counted` says how many of the `epochs` are in the averages. `together_rows` is how many rows an epoch had when all slots
    came together, `spread_rows` when it became too much for one slot.
    """

    is_one_slot: bool = True
    epochs: int = 0
    counted: int = 0
    rows: float = 0.0
    cpu_s: float = 0.0
    together_rows: float = 0.0
    spread_rows: float = 0.0

    def is_small(self, epochs: int) -> bool:
        """Whether a job of so many epochs runs in one slot; epochs of the past come in larger jobs."""
        return self.is_one_slot and epochs <= 1


SPREAD = Load(is_one_slot=False)
"""How a job begins: all slots load or restore its state, and epochs that stay small come together later."""


def observed(load: Load, rows: int, cpu_s: float, state_bytes: int) -> Load:
    """The load after one more live epoch, with the rows that it had and what its tasks took.

    >>> small = observed(observed(Load(), 500, 0.3, 0), 500, 0.01, 0)
    >>> small.is_one_slot, observed(small, 500_000, 0.6, 0).is_one_slot
    (True, False)
    """
    return _in_one_slot(load, rows, cpu_s, state_bytes) if load.is_one_slot else _in_all_slots(load, rows, cpu_s, state_bytes)


def _in_one_slot(load: Load, rows: int, cpu_s: float, state_bytes: int) -> Load:
    """Spread an epoch over all slots as soon as it is too much for one."""
    is_usual = rows <= max(_MOST_COLD_ROWS, _MORE_ROWS * load.together_rows)
    if load.epochs == 0 or (load.epochs < _COLD_EPOCHS and is_usual):
        # It starts processes, or brings the state together: it says little unless it is very long.
        known = load._replace(epochs=load.epochs + 1)
        is_too_much = cpu_s > MOST_COLD_CPU_S and not load.together_rows
    else:
        is_longer = rows <= _MORE_ROWS * load.rows
        known = _averaged(load, rows, min(cpu_s, _LONG_EPOCH * MOST_CPU_S) if is_longer else cpu_s)
        is_too_much = known.cpu_s > TOO_MUCH_CPU_S
    if is_too_much or state_bytes > MOST_STATE_BYTES:
        return Load(is_one_slot=False, spread_rows=max(known.rows, rows))
    return known


def _in_all_slots(load: Load, rows: int, cpu_s: float, state_bytes: int) -> Load:
    """Bring epochs together that have been small for long enough."""
    known = _averaged(load, rows, min(cpu_s, _LONG_EPOCH * MOST_CPU_S))
    # What was too much for one slot is little enough when there are half as many rows.
    is_small = ONE_SLOT_SHARE * known.cpu_s < MOST_CPU_S or known.rows < known.spread_rows / 2
    least_epochs = _LEAST_EPOCHS + state_bytes // STATE_BYTES_PER_EPOCH
    is_worth_it = is_small and 2 * state_bytes < MOST_STATE_BYTES and known.epochs >= least_epochs
    return Load(together_rows=known.rows) if is_worth_it else known


def _averaged(load: Load, rows: int, cpu_s: float) -> Load:
    weight = _WEIGHT_OF_NEWEST if load.counted else 1.0
    return load._replace(
        epochs=load.epochs + 1,
        counted=load.counted + 1,
        rows=load.rows + weight * (rows - load.rows),
        cpu_s=load.cpu_s + weight * (cpu_s - load.cpu_s),
    )
