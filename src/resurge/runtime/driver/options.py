"""What a user may choose about a run."""

import atexit
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from resurge.connectors.locations import plain_location
from resurge.coordinator.scheduling import STRATEGIES
from resurge.errors import JobError
from resurge.runtime.driver.session import default_local_root

BALANCES = ("auto", "off")


@dataclass(frozen=True)
class RunOptions:
    """How a topology is run; the defaults suit a laptop.

    With `always_buffers` every partition keeps its output for those below it at all times, and not only after a correlated
    failure: a recovery then needs no shadows, and every epoch costs the writing.

    The driver's inputs are recorded in `input_log`, if one is named, so that its decisions can be replayed.

    A partition that is down needs all input since its newest checkpoint. With `most_epochs_kept`, a job ends, and says why, when that
    is more than so many epochs and there is no node for the partition; without, it is kept for as long as it takes.

    With `balance` "auto", key groups move to other nodes by themselves when load is uneven; with "off" only when asked.

    Nodes keep their local store below `local_root`, up to `local_limit_bytes` each; what is more goes to the folder that Spark
    uses for its own local files.
    """

    checkpoint_url: str | None = None
    interval_s: float = 1.0
    checkpoint_interval: int = 10
    checkpoints_kept: int = 2
    max_rows_per_epoch: int | None = None
    back_pressure: bool = True
    chained: bool = True
    strategy: str = "incremental"
    balance: str = "off"
    correlated_from: int = 2
    headroom: float = 0.8
    buffer_limit_bytes: int = 256 * 1024 * 1024
    always_buffers: bool = False
    local_root: str = field(default_factory=default_local_root)
    local_limit_bytes: int | None = None
    input_log: Path | None = None
    most_epochs_kept: int | None = None

    def __post_init__(self) -> None:
        # Executors have another working directory.
        object.__setattr__(self, "local_root", plain_location(self.local_root))
        if self.checkpoint_url is not None:
            object.__setattr__(self, "checkpoint_url", plain_location(self.checkpoint_url))
        if self.interval_s < 0:
            raise JobError(f"the interval is {self.interval_s} s; expected 0 (as fast as possible) or more")
        if self.checkpoint_interval < 0:
            raise JobError(f"checkpoint_interval is {self.checkpoint_interval}; expected 0 (never) or a number of epochs")
        if self.strategy not in STRATEGIES:
            raise JobError(f"the recovery strategy is {self.strategy!r}; expected one of {', '.join(STRATEGIES)}")
        if self.balance not in BALANCES:
            raise JobError(f"balance is {self.balance!r}; expected {' or '.join(BALANCES)}")
        if not 0 < self.headroom <= 1:
            raise JobError(
                f"the headroom is {self.headroom}; expected the part of a node that may be used, above 0 and at most 1"
            )
        if self.local_limit_bytes is not None and self.local_limit_bytes < 0:
            raise JobError(f"the local store's limit is {self.local_limit_bytes} bytes; expected 0 (all on disk) or more")
        if self.most_epochs_kept is not None and self.most_epochs_kept < 1:
            raise JobError(f"most_epochs_kept is {self.most_epochs_kept}; expected at least 1, or None for no limit")
        if self.checkpoints_kept < 1:
            raise JobError(f"checkpoints_kept is {self.checkpoints_kept}; expected at least 1")

    def url(self) -> str:
        """Where the job is kept; unless the user named a place, a folder that is removed when Python ends."""
        if self.checkpoint_url is not None:
            return self.checkpoint_url
        folder = tempfile.mkdtemp(prefix="resurge-job-")
        # Nobody could find it again.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
