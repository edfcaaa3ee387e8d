"""What a driver finds when it starts: the last trusted checkpoint and the epochs after it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from resurge.connectors.contracts import Offset
from resurge.errors import CorruptFileError
from resurge.protocols.checkpoint import CheckpointRecord, candidates
from resurge.storage.checkpoint_store import CheckpointManifest, read_manifest
from resurge.storage.durable import DurableStore
from resurge.storage.journal import CheckpointPublished, CheckpointRefused, EpochCommitted, EpochPlanned, Record


@dataclass(frozen=True)
class Resumption:
    """From where a job goes on."""

    checkpoint: CheckpointManifest | None
    planned: list[EpochPlanned] = field(default_factory=list)
    committed: dict[int, EpochCommitted] = field(default_factory=dict)
    published: list[CheckpointRecord] = field(default_factory=list)
    reached: dict[str, Offset] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    @property
    def checkpoint_epoch(self) -> int:
        """The epoch that the restored state is of; 0 is the empty state."""
        return self.checkpoint.epoch if self.checkpoint else 0

    @property
    def committed_epoch(self) -> int:
        """The last epoch whose output was decided."""
        return max(self.committed, default=self.checkpoint_epoch)


def resumption(store: DurableStore, records: list[Record]) -> Resumption:
    """Read the journal's facts and choose the newest checkpoint that can be used, as far as its manifest tells.

    Its runs are not read here: whoever restores a run verifies it, and a damaged one makes the driver go back.
    """
    published = [CheckpointRecord(r.epoch, r.manifest, r.checksum) for r in records if isinstance(r, CheckpointPublished)]
    warnings: list[str] = []
    refused = {record.manifest: record.reason for record in records if isinstance(record, CheckpointRefused)}
    checkpoint, trusted = _newest_usable(store, published, refused, warnings)
    since = checkpoint.epoch if checkpoint else 0
    plans = {record.epoch: record for record in records if isinstance(record, EpochPlanned)}
    commits = {record.epoch: record for record in records if isinstance(record, EpochCommitted)}
    # Nobody has seen anything of an epoch that was not committed: it is planned anew, with the input that is there now.
    after = [plans[epoch] for epoch in sorted(plans) if epoch > since and epoch in commits]
    _refuse_gap(store, since, [plan.epoch for plan in after], begins_anew=bool(published) and checkpoint is None)
    committed = {epoch: commit for epoch, commit in commits.items() if epoch > since}
    return Resumption(checkpoint, after, committed, trusted, dict(checkpoint.reached) if checkpoint else {}, warnings, records)


def _newest_usable(
    store: DurableStore, published: list[CheckpointRecord], refused: Mapping[str, str], warnings: list[str]
) -> tuple[CheckpointManifest | None, list[CheckpointRecord]]:
    ordered = candidates(published)
    for index, record in enumerate(ordered):
        try:
            if record.manifest in refused:
                raise CorruptFileError(refused[record.manifest])
            manifest = read_manifest(store, record)
        except CorruptFileError as error:
            instead = (
                f"the checkpoint of epoch {ordered[index + 1].epoch}" if index + 1 < len(ordered) else "the beginning of the job"
            )
            warnings.append(f"checkpoint of epoch {record.epoch} cannot be used: {error}; going back to {instead}")
            continue
        return manifest, ordered[index:]
    return None, []


def _refuse_gap(store: DurableStore, since: int, epochs: list[int], *, begins_anew: bool) -> None:
    """After a checkpoint, or the beginning, the journal must go on with the very next epoch, or input would be lost."""
    is_missing = begins_anew and not epochs
    if is_missing or epochs != list(range(since + 1, since + 1 + len(epochs))):
        there = f"epochs {epochs[0]} to {epochs[-1]}" if epochs else "no epochs"
        raise CorruptFileError(
            f"the journal at {store.url} has {there}, but the newest usable state is of epoch {since}; "
            "expected the epochs in between: restore the checkpoint files from a copy, or start a new job"
        )
