"""What a driver finds when it starts: the newest trusted checkpoint of each partition, and the epochs after the oldest of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from resurge.connectors.contracts import Offset
from resurge.errors import CorruptFileError
from resurge.model.gaps import Gap
from resurge.model.names import Partition
from resurge.protocols.checkpoint import CheckpointRecord, candidates
from resurge.protocols.cuts import Cut, Cuts, in_use
from resurge.storage import paths
from resurge.storage.checkpoint_store import CheckpointManifest, read_manifest
from resurge.storage.durable import DurableStore
from resurge.storage.journal import CheckpointPublished, CheckpointRefused, EpochCommitted, EpochPlanned, Record


@dataclass(frozen=True)
class Resumption:
    """From where a job goes on: `manifests` are the checkpoints in use, `published` all that are kept, newest first.

    `reached` and `watermarks_us` are those of the oldest checkpoint in use; `planned` are the committed epochs after it.
    """

    cuts: Cuts
    manifests: list[CheckpointManifest] = field(default_factory=list)
    planned: list[EpochPlanned] = field(default_factory=list)
    committed: dict[int, EpochCommitted] = field(default_factory=dict)
    published: list[CheckpointRecord] = field(default_factory=list)
    reached: dict[str, Offset] = field(default_factory=dict)
    watermarks_us: dict[str, int] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    gaps: dict[str, Gap] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()

    @property
    def committed_epoch(self) -> int:
        """The last epoch whose output was decided."""
        return max(self.committed, default=self.cuts.last)


def resumption(store: DurableStore, records: list[Record], partitions: Collection[Partition]) -> Resumption:
    """Read the journal and choose each partition's newest checkpoint that can be used, as far as its manifest tells.

    Its runs are not read here: whoever restores a run verifies it, and a damaged one makes the driver go back.
    """
    published = candidates(record.record for record in records if isinstance(record, CheckpointPublished))
    warnings: list[str] = []
    refused = {record.manifest: record.reason for record in records if isinstance(record, CheckpointRefused)}
    usable, unusable = _usable(store, published, refused, partitions, warnings)
    cuts = _cuts(usable, {record.epoch: record for record in published}, partitions)
    oldest = usable.get(cuts.first)
    plans = {record.epoch: record for record in records if isinstance(record, EpochPlanned)}
    commits = {record.epoch: record for record in records if isinstance(record, EpochCommitted)}
    # Nobody has seen anything of an epoch that was not committed: it is planned anew, with the input that is there now.
    after = [plans[epoch] for epoch in sorted(plans) if epoch > cuts.first and epoch in commits]
    _refuse_gap(store, cuts.first, [plan.epoch for plan in after], begins_anew=bool(published) and oldest is None)
    there = frozenset(store.names(paths.CHECKPOINTS))
    drained = frozenset(usable[max(usable)].drained) if usable else frozenset()
    if drained:
        warnings.append(
            f"drained before: nodes of {', '.join(sorted(drained))} take nothing, unless it is run with --use-drained"
        )
    return Resumption(
        cuts,
        [usable[cut.epoch] for cut in cuts.kept if cut.epoch in usable],
        after,
        {epoch: commit for epoch, commit in commits.items() if epoch > cuts.first},
        [record for record in published if record.manifest in there and record.manifest not in unusable],
        dict(oldest.reached) if oldest else {},
        dict(oldest.watermarks_us) if oldest else {},
        dict(usable[max(usable)].costs) if usable else {},
        warnings,
        records,
        dict(usable[max(usable)].gaps) if usable else {},
        drained,
    )


def _usable(
    store: DurableStore,
    published: list[CheckpointRecord],
    refused: Mapping[str, str],
    partitions: Collection[Partition],
    warnings: list[str],
) -> tuple[dict[int, CheckpointManifest], set[str]]:
    """The newest manifest of each partition that can be read, by epoch; and those that cannot, of which it is warned."""
    # A job without state has checkpoints too.
    missing = {str(partition) for partition in partitions} or {""}
    found: dict[int, CheckpointManifest] = {}
    unusable: set[str] = set()
    for index, record in enumerate(published):
        if not missing.difference(record.absent):
            continue
        try:
            if record.manifest in refused:
                raise CorruptFileError(refused[record.manifest])
            found[record.epoch] = read_manifest(store, record)
            missing.intersection_update(record.absent)
        except CorruptFileError as error:
            unusable.add(record.manifest)
            older = next((later.epoch for later in published[index + 1 :] if missing.difference(later.absent)), None)
            instead = f"the checkpoint of epoch {older}" if older is not None else "the beginning of the job"
            warnings.append(f"checkpoint of epoch {record.epoch} cannot be used: {error}; going back to {instead}")
    return found, unusable


def _cuts(usable: Collection[int], records: Mapping[int, CheckpointRecord], partitions: Collection[Partition]) -> Cuts:
    """The checkpoints from which partitions restore."""
    everyone = frozenset(partitions)
    if not everyone:
        return Cuts.whole((), max(usable, default=0))
    cuts = (Cut(epoch, everyone.difference(map(Partition.parse, records[epoch].absent))) for epoch in usable)
    return Cuts(in_use(cuts)).completed(everyone)


def _refuse_gap(store: DurableStore, since: int, epochs: list[int], *, begins_anew: bool) -> None:
    """After a checkpoint, or the beginning, the journal must go on with the very next epoch, or input would be lost."""
    is_missing = begins_anew and not epochs
    if is_missing or epochs != list(range(since + 1, since + 1 + len(epochs))):
        there = f"epochs {epochs[0]} to {epochs[-1]}" if epochs else "no epochs"
        raise CorruptFileError(
            f"the journal at {store.url} has {there}, but the newest usable state is of epoch {since}; "
            "expected the epochs in between: restore the checkpoint files from a copy, or start a new job"
        )
