"""What a user may choose about how a job is run."""

import atexit
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from resurge.connectors.locations import plain_location
from resurge.coordinator.copying import CopySettings
from resurge.coordinator.scheduling import STRATEGIES
from resurge.coordinator.state import ScaleBounds
from resurge.errors import JobError, TopologyError
from resurge.model.durations import microseconds
from resurge.runtime.driver.session import default_local_root

BALANCES = ("auto", "off")
GIVE_UP = "give-up"
WHEN_TOO_FAR_BEHIND = ("stop", GIVE_UP)
PLACEMENTS = ("correlated", "even", "baseline")
CHECKPOINT_INTERVAL = "10s"
"""Long enough that checkpoints cost little however short epochs are, short enough that a replay takes seconds."""
_BOUNDS = re.compile(r"(\d+)\.\.(\d+)")


def scale_bounds(text: str | None) -> ScaleBounds | None:
    """How few and how many nodes a job may have, from MIN..MAX.

    >>> scale_bounds("2..8")
    ScaleBounds(least=2, most=8, full_s=10.0, empty_s=60.0, rest_s=20.0)
    """
    if text is None:
        return None
    found = _BOUNDS.fullmatch(text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise JobError(f"scale is {text!r}; expected MIN..MAX, from at least 1 node to no fewer, such as 2..8")
    return ScaleBounds(int(found[1]), int(found[2]))


def checkpoint_rule(interval: int | str) -> tuple[int, float]:
    """After how many epochs, or else after how many seconds, a checkpoint is taken; both 0 are never.

    >>> checkpoint_rule("10s"), checkpoint_rule(5), checkpoint_rule("5")
    ((0, 10.0), (5, 0.0), (5, 0.0))
    """
    if isinstance(interval, str) and interval.strip().isdigit():
        interval = int(interval)
    if isinstance(interval, int) and not isinstance(interval, bool) and interval >= 0:
        return interval, 0.0
    try:
        seconds = microseconds(interval, "checkpoint_interval") / 1_000_000 if isinstance(interval, str) else 0.0
    except TopologyError:
        seconds = 0.0
    if seconds <= 0:
        raise JobError(
            f"checkpoint_interval is {interval!r}; expected a time such as '10s', a number of epochs such as 5, or 0 for never"
        )
    return 0, seconds


@dataclass(frozen=True)
class RunOptions:
    """How a topology is run; the defaults suit a laptop.

    With `always_buffers` every partition keeps its output for those below it at all times, and not only after a correlated
    failure: a recovery then needs no shadows, and every epoch costs the writing.

    A checkpoint is taken every `checkpoint_interval`: a time such as "10s", or a number of epochs; 0 is never.

    The driver's inputs are recorded in `input_log`, if one is named, so that its decisions can be replayed.

    A partition that is down needs all input since its newest checkpoint. With `most_epochs_kept`, `when_too_far_behind` applies when
    that is more than so many epochs and there is no node for the partition: with "stop" the job ends and says why, with "give-up"
    the partition skips what is kept for it, which is counted. Without, it is kept for as long as it takes.

    With `balance` "auto", key groups move to other nodes by themselves when load is uneven; with "off" only when asked. With
    `scale` MIN..MAX the job asks for nodes when it is too full, and gives nodes back when it is too empty.

    With `copies`, other nodes keep so many copies of each partition's state, and recovery goes on from them where they are newer or
    nearer than the checkpoint; `copies_by_operator` has other numbers for some operators. They are refreshed at checkpoints or, with
    `copies_every`, every so many epochs. `copies_placement` says how they are placed.

    Nodes that were drained before the driver started take nothing, unless `uses_drained`.

    Nodes keep their local store below `local_root`, up to `local_limit_bytes` each; what is more goes to the folder that Spark
    uses for its own local files.
    """

    checkpoint_url: str | None = None
    interval_s: float = 1.0
    checkpoint_interval: int | str = CHECKPOINT_INTERVAL
    checkpoints_kept: int = 2
    max_rows_per_epoch: int | None = None
    back_pressure: bool = True
    chained: bool = True
    strategy: str = "incremental"
    balance: str = "auto"
    scale: str | None = None
    correlated_from: int = 2
    headroom: float = 0.8
    buffer_limit_bytes: int = 256 * 1024 * 1024
    always_buffers: bool = False
    local_root: str = field(default_factory=default_local_root)
    local_limit_bytes: int | None = None
    input_log: Path | None = None
    most_epochs_kept: int | None = None
    when_too_far_behind: str = "stop"
    copies: int = 0
    copies_by_operator: Mapping[str, int] = field(default_factory=dict)
    copies_every: int | None = None
    copies_placement: str = "correlated"
    uses_drained: bool = False

    def __post_init__(self) -> None:
        # Executors have another working directory.
        object.__setattr__(self, "local_root", plain_location(self.local_root))
        if self.checkpoint_url is not None:
            object.__setattr__(self, "checkpoint_url", plain_location(self.checkpoint_url))
        if self.interval_s < 0:
            raise JobError(f"the interval is {self.interval_s} s; expected 0 (as fast as possible) or more")
        checkpoint_rule(self.checkpoint_interval)
        if self.strategy not in STRATEGIES:
            raise JobError(f"the recovery strategy is {self.strategy!r}; expected one of {', '.join(STRATEGIES)}")
        if self.balance not in BALANCES:
            raise JobError(f"balance is {self.balance!r}; expected {' or '.join(BALANCES)}")
        scale_bounds(self.scale)
        if not 0 < self.headroom <= 1:
            raise JobError(
                f"the headroom is {self.headroom}; expected the part of a node that may be used, above 0 and at most 1"
            )
        if self.local_limit_bytes is not None and self.local_limit_bytes < 0:
            raise JobError(f"the local store's limit is {self.local_limit_bytes} bytes; expected 0 (all on disk) or more")
        if self.most_epochs_kept is not None and self.most_epochs_kept < 1:
            raise JobError(f"most_epochs_kept is {self.most_epochs_kept}; expected at least 1, or None for no limit")
        if self.when_too_far_behind not in WHEN_TOO_FAR_BEHIND:
            raise JobError(f"when_too_far_behind is {self.when_too_far_behind!r}; expected {' or '.join(WHEN_TOO_FAR_BEHIND)}")
        if self.when_too_far_behind == GIVE_UP and (self.most_epochs_kept is None or not self.has_checkpoints):
            raise JobError(
                "partitions are to be given up when they are too far behind; expected most_epochs_kept to say how far, and a "
                "checkpoint_interval above 0, since they skip to a checkpoint"
            )
        self._check_copies()
        if self.checkpoints_kept < 1:
            raise JobError(f"checkpoints_kept is {self.checkpoints_kept}; expected at least 1")

    @property
    def has_checkpoints(self) -> bool:
        """Whether any are taken."""
        return checkpoint_rule(self.checkpoint_interval) != (0, 0.0)

    def _check_copies(self) -> None:
        for operator, copies in {"": self.copies, **self.copies_by_operator}.items():
            if copies < 0:
                what = f"copies of {operator}" if operator else "copies"
                raise JobError(f"{what} is {copies}; expected 0 (none) or the number of other nodes that keep each state")
        if self.copies_every is not None and self.copies_every < 1:
            raise JobError(f"copies_every is {self.copies_every}; expected at least 1, or None to refresh copies at checkpoints")
        if self.copies_placement not in PLACEMENTS:
            raise JobError(f"copies_placement is {self.copies_placement!r}; expected {', '.join(PLACEMENTS)}")

    def copying(self, operators: Collection[str]) -> CopySettings:
        """How many copies are kept, for a job in which these operators have state."""
        for operator in self.copies_by_operator:
            if operator not in operators:
                known = ", ".join(sorted(operators)) or "none"
                raise JobError(f"copies are asked for of {operator!r}, which has no state (operators with state: {known})")
        return CopySettings(self.copies, dict(self.copies_by_operator), self.copies_every, self.copies_placement)

    def url(self) -> str:
        """Where the job is kept; unless the user named a place, a folder that is removed when Python ends."""
        if self.checkpoint_url is not None:
            return self.checkpoint_url
        folder = tempfile.mkdtemp(prefix="resurge-job-")
        # Nobody could find it again.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
