"""The study of moving state in virtual time: the same coordinator, with sizes of state that were measured on a real cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from resurge.errors import SimulationError
from resurge.model.names import KeyGroup, Partition
from resurge.model.requests import CPA, CPAL, DIRECT, PRECOPY
from resurge.simulator.faults import Ask, Schedule, Wanted
from resurge.simulator.scenarios import Scenario
from resurge.simulator.simulation import simulate
from resurge.simulator.workload import Workload, workload_of
from resurge.simulator.world import Timing
from resurge.studies.migration import Migration
from resurge.telemetry.events import EpochFinished, MoveEnded

WANTED = {PRECOPY: Wanted.MOVE, DIRECT: Wanted.MOVE_DIRECTLY, CPA: Wanted.MOVE_BY_CPA, CPAL: Wanted.MOVE_BY_CPAL}
SEED = 3
ASKED_S = 14.0
EPOCHS_OF_CHANGES = 3


@dataclass(frozen=True)
class SizedWorkload(Workload):
    """A job whose partitions all have a state of the same size."""

    partition_bytes: float = field(default=0.0, kw_only=True)

    def state_bytes(self, partition: Partition) -> float:
        """The size that was given."""
        return self.partition_bytes


@dataclass(frozen=True)
class SimulatedMove:
    """One move in virtual time."""

    how: str
    state_bytes: int
    pause_s: float
    completion_s: float
    longest_ratio: float


def simulated_like(moves: Sequence[Migration]) -> list[SimulatedMove]:
    """Moves in virtual time of states as large as those that `direct` shipped, at the speed that was measured for the largest."""
    shipped = sorted((move.shipped_bytes, move.pause_s) for move in moves if move.how == DIRECT and move.pause_s > 0)
    if not shipped:
        return []
    largest_bytes, took_s = shipped[-1]
    rest = [move.shipped_bytes for move in moves if move.how == PRECOPY and move.state_rows == max(m.state_rows for m in moves)]
    # What precopy ships beyond the whole state are the changes of a few epochs.
    changed = max(0.0, max(rest, default=0) - largest_bytes) / largest_bytes / EPOCHS_OF_CHANGES
    by_rows = {move.state_rows: move.shipped_bytes for move in moves if move.how == DIRECT}
    return simulated_moves(by_rows.values(), largest_bytes / took_s, min(1.0, changed))


def simulated_moves(sizes_bytes: Iterable[int], shipped_bytes_per_s: float, changed_share: float) -> list[SimulatedMove]:
    """Every way that the simulator knows, for states of so many bytes per key group."""
    return [_simulated(how, size, shipped_bytes_per_s, changed_share) for size in sizes_bytes for how in WANTED]


def _simulated(how: str, size_bytes: int, shipped_bytes_per_s: float, changed_share: float) -> SimulatedMove:
    partitions = [Partition("events", KeyGroup(group)) for group in range(2)]
    made = workload_of(
        "flights",
        {partition: frozenset[Partition]() for partition in partitions},
        dict.fromkeys(partitions, 0.1),
        {f"events/{partition.key_group}": partition for partition in partitions},
        {"events": 1},
        2,
    )
    workload = SizedWorkload(
        made.name, made.graph, made.costs, made.outputs, made.priorities, made.key_groups, partition_bytes=float(size_bytes)
    )
    timing = Timing(interval_s=0.5, shipped_bytes_per_s=shipped_bytes_per_s, changed_share=changed_share)
    # The request's own chance chooses node and key groups: the first that moves something is taken.
    for seed in range(100):
        schedule = Schedule.of([Ask(ASKED_S, WANTED[how], seed)])
        outcome = simulate(Scenario("migration", workload, 3, 1.0, schedule, timing=timing, checkpoint_interval=24), SEED)
        if outcome.broken:
            raise SimulationError(f"a simulated move broke a promise: {outcome.broken}")
        ended = [event for event in outcome.events if isinstance(event, MoveEnded) and event.moved == 1]
        if ended:
            epochs = [event for event in outcome.events if isinstance(event, EpochFinished)]
            normal = [epoch.took_s for epoch in epochs if ASKED_S - 5.0 < epoch.at_s < ASKED_S]
            during = [epoch.took_s for epoch in epochs if ASKED_S <= epoch.at_s <= ended[0].at_s + 0.01]
            ratio = max(during) / (sum(normal) / len(normal))
            return SimulatedMove(how, size_bytes, ended[0].pause_s, ended[0].took_s, ratio)
    raise SimulationError("no request moved a single key group; expected one of a hundred to do so")
