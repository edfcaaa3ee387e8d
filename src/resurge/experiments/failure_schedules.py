"""What a seed of chaos stands for: kills and replacements, drawn at random or taken from traces of real machines."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from resurge.errors import ProblemError
from resurge.experiments.traces import Failure, arrival_times_s, bursts, failures
from resurge.testing.fault_injection import FAULTS, Strike

CLOSE_S = 60.0
"""Two nodes of a trace fail close together if they do so in the same minute or in the next: traces are logged by the minute."""
BURST_GAP_S = 600.0
"""What fails so soon afterwards belongs to the same burst: repairs take longer."""
EPOCH_S = 1.0
"""About how long an epoch of the job takes; times of a trace are told to the striker as epochs and a rest."""
LARGEST_SCALE = 1 / 12
"""Minutes become five seconds at most: what was close together must not be drawn apart to fill the run."""
DISTURBED_S = (1.0, 3.0, 8.0, 15.0)
"""How long a link is cut or a process stopped."""
REPLACED_WITHIN_S = 4.0
"""Where no start-up times are given, a replacement starts so soon after a kill, in seconds of the run."""


@dataclass(frozen=True)
class FailureSchedules:
    """Schedules by seed for a job of so many epochs on so many nodes; without bursts or times they are random."""

    epochs: int
    nodes: int
    bursts: Sequence[Sequence[Failure]] = ()
    arrivals_s: Sequence[float] = ()
    faults: Sequence[str] = ("kill",)

    @classmethod
    def read(
        cls,
        epochs: int,
        nodes: int,
        trace: Path | None = None,
        arrivals: Path | None = None,
        faults: Sequence[str] = ("kill",),
    ) -> "FailureSchedules":
        """With the bursts of a failure trace and the start-up times of a file, where these are given."""
        found = bursts(failures(trace), most=nodes, close_s=CLOSE_S, gap_s=BURST_GAP_S) if trace is not None else []
        if trace is not None and not found:
            raise ProblemError(
                f"failure trace {str(trace)!r} has no two nodes that fail within {CLOSE_S:g} seconds of one another; "
                "expected at least one such burst"
            )
        return cls(epochs, nodes, found, arrival_times_s(arrivals) if arrivals is not None else (), faults)

    @property
    def last_epoch(self) -> int:
        """The last epoch after which something may happen and still meet a job that runs."""
        return self.epochs - 2

    @property
    def node_faults(self) -> tuple[str, ...]:
        """The faults that strike nodes; a job can also be asked to move something."""
        return tuple(fault for fault in self.faults if fault in FAULTS)

    def strikes(self, seed: int) -> list[Strike]:
        """The failures of a seed; what is killed is replaced, sooner or later, never by less."""
        rng = random.Random(seed)
        if not self.node_faults:
            return []
        return self._burst(rng) if self.bursts else self._blows(rng)

    def _blows(self, rng: random.Random) -> list[Strike]:
        """One to three blows."""
        found = []
        for epoch in sorted(rng.sample(range(1, self.last_epoch + 1), rng.choice((1, 2, 2, 3)))):
            fault = rng.choice(self.node_faults) if self.node_faults != ("kill",) else "kill"
            if fault != "kill":
                found.append(self._disturbance(epoch, fault, rng))
                continue
            kill = rng.choice((1, 1, 2, 2, 3, 4))
            delay_s, waits_s = rng.uniform(0, 1.5), self._waits_s(kill, rng)
            found.append(Strike(epoch, delay_s, kill, self._scaled(waits_s, self._scale(waits_s))))
        return found

    def _disturbance(self, epoch: int, fault: str, rng: random.Random) -> Strike:
        """One node or half of them, or the driver cut from all; shorter or longer than it takes to declare a node dead."""
        whom = (1, 1, max(1, self.nodes // 2), 0) if fault == "cut" else (1, 1, max(1, self.nodes // 2))
        return Strike(epoch, rng.uniform(0, 1.5), rng.choice(whom), (), fault, rng.choice(DISTURBED_S))

    def _burst(self, rng: random.Random) -> list[Strike]:
        """Nodes that failed close together; those of one moment die at once."""
        burst = rng.choice(self.bursts)
        after_s = [failure.at_s - burst[0].at_s for failure in burst]
        waits_s = self._waits_s(len(burst), rng)
        # One scale for both, so that a machine that was replaced before the next one failed is so here too.
        ends_s = [at_s + wait_s for at_s, wait_s in zip(after_s, waits_s, strict=True)] if self.arrivals_s else after_s
        scale = self._scale(ends_s)
        latest = self.last_epoch - int(after_s[-1] * scale / EPOCH_S) - 1
        first_epoch, begins_s = rng.randint(1, latest), rng.uniform(0, EPOCH_S)
        found = []
        for at_s, together in groupby(zip(after_s, waits_s, strict=True), key=lambda pair: pair[0]):
            epochs, delay_s = divmod(begins_s + at_s * scale, EPOCH_S)
            waited_s = self._scaled([wait_s for _, wait_s in together], scale)
            found.append(Strike(first_epoch + int(epochs), delay_s, len(waited_s), waited_s))
        return found

    def _waits_s(self, count: int, rng: random.Random) -> list[float]:
        """How long each replacement takes: as long as one of the known machines took, or a few seconds of the run."""
        return [rng.choice(self.arrivals_s) if self.arrivals_s else rng.uniform(0, REPLACED_WITHIN_S) for _ in range(count)]

    def _scaled(self, waits_s: Sequence[float], scale: float) -> tuple[float, ...]:
        return tuple(wait_s * scale if self.arrivals_s else wait_s for wait_s in waits_s)

    def _scale(self, ends_s: Sequence[float]) -> float:
        """What to multiply times of real machines with, so that the last of them still falls into the run."""
        return min(LARGEST_SCALE, (self.last_epoch - 2) * EPOCH_S / max(1.0, *ends_s))
