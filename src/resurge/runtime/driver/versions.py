"""Where every partition's newest version is, which local files are still needed, and which buffers there are."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.operators.program import Program
from resurge.protocols.catch_up import Coverage, Pair, changed
from resurge.runtime.worker.messages import BufferReport, CohortReport, JobPlan, Replay, SlotReport
from resurge.storage import paths
from resurge.storage.runs import SavedCohort

Produced = tuple[NodeId, range]
"""Where a partition ran in a job, and which epochs it took."""


@dataclass
class Version:
    """The state of some key groups on a node: the local segment that describes it, and all segments it needs."""

    segment: str
    segments: tuple[str, ...]
    cursor: int
    node: NodeId
    state_rows: int = 0
    state_bytes: int = 0


@dataclass
class Buffered:
    """What one node kept in one job: the files, and which epochs of which pairs they cover, also where there was no row."""

    node: NodeId
    files: list[BufferReport]
    covered: list[tuple[int, Partition, list[int], range]]

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def span(self) -> range:
        """From the first to the last epoch that may be in the files."""
        return range(min(epochs.start for *_, epochs in self.covered), max(epochs.stop for *_, epochs in self.covered))


@dataclass
class Versions:
    """The driver's knowledge of what nodes hold."""

    program: Program
    partitions: dict[Partition, Version] = field(default_factory=dict)
    shadows: dict[Partition, Version] = field(default_factory=dict)
    checkpoint: dict[str, list[SavedCohort]] = field(default_factory=dict)
    buffers: list[Buffered] = field(default_factory=list)
    files: dict[NodeId, set[str]] = field(default_factory=dict)
    covered: Coverage = field(default_factory=dict)
    held_bytes: dict[NodeId, int] = field(default_factory=dict)
    pinned: dict[str, frozenset[str]] = field(default_factory=dict)

    def expired(self) -> dict[NodeId, list[str]]:
        """The files of each node that nothing needs any more."""
        needed = self._needed().union(*self.pinned.values())
        return {node: sorted(files - needed) for node, files in self.files.items()}

    def pin(self, plan: JobPlan) -> None:
        """A job begins: what it reads stays until it has ended, whatever is forgotten meanwhile."""
        read = [file for slot in plan.slots for replay in slot.replays for file in [replay.file]]
        for slot in plan.slots:
            for work in slot.cohorts:
                # Key groups of one segment have all its files in common.
                partition = Partition(work.operator, KeyGroup(work.key_groups[0]))
                version = (self.shadows if work.shadow else self.partitions).get(partition)
                if version is not None and version.segment == work.segment:
                    read += version.segments
        self.pinned[plan.attempt] = frozenset(read)

    def abandoned(self, plan: JobPlan, nodes: Collection[str]) -> None:
        """An attempt came to nothing: what it may have written on these nodes is not needed, nor what it read."""
        self.pinned.pop(plan.attempt, None)
        for index, slot in enumerate(plan.slots):
            if slot.node in nodes:
                for level in range(1, self.program.levels):
                    name = paths.local_segment(plan.epoch, f"{plan.attempt}-{level}", index)
                    self.files.setdefault(NodeId(slot.node), set()).update((name, paths.local_buffer(name)))

    def adopt(self, plan: JobPlan, reports: Iterable[SlotReport]) -> None:
        """An attempt succeeded: its versions are the newest, and what it was told to remove is gone."""
        self.pinned.pop(plan.attempt, None)
        for slot in plan.slots:
            self.files.setdefault(NodeId(slot.node), set()).difference_update(slot.expired)
        for report in reports:
            node = NodeId(plan.slots[report.slot].node)
            for cohort in report.cohorts:
                self._adopt_cohort(cohort, report, node)
            self.files[node].update(report.segments)
            self.files[node].update(buffer.file for buffer in report.buffers)

    def buffer(
        self, kept: Mapping[int, list[int]], reports: Iterable[SlotReport], producers: Mapping[Partition, Produced]
    ) -> None:
        """Remember what a job buffered: for each exchange the key groups kept, from every partition that ran."""
        files: dict[NodeId, list[BufferReport]] = {}
        for report in reports:
            for file in report.buffers:
                files.setdefault(NodeId(file.node), []).append(file)
        covered: dict[NodeId, list[tuple[int, Partition, list[int], range]]] = {}
        for exchange, groups in kept.items():
            owner = self.program.owner(self.program.exchanges[exchange].node)
            for partition, (node, epochs) in producers.items():
                if partition.operator == owner:
                    covered.setdefault(node, []).append((exchange, partition, groups, epochs))
        added = [Buffered(node, files.get(node, []), pairs) for node, pairs in covered.items()]
        self.buffers += added
        self.covered = changed(self.covered, self._pairs(added))
        for buffer in added:
            self.held_bytes[buffer.node] = self.held_bytes.get(buffer.node, 0) + buffer.size_bytes

    def _adopt_cohort(self, cohort: CohortReport, report: SlotReport, node: NodeId) -> None:
        version = Version(report.segment, tuple(report.segments), cohort.cursor, node, sum(cohort.state_rows), cohort.state_bytes)
        known = self.shadows if cohort.shadow else self.partitions
        for group in cohort.key_groups:
            known[Partition(cohort.operator, KeyGroup(group))] = version

    def size(self) -> tuple[int, int]:
        """Rows and bytes of state, of all partitions that have a version."""
        versions = {id(version): version for version in self.partitions.values()}.values()
        return sum(version.state_rows for version in versions), sum(version.state_bytes for version in versions)

    def restore_from(self, saved: Iterable[SavedCohort]) -> None:
        """What partitions without a version begin with: a checkpoint."""
        self.checkpoint = {}
        for cohort in saved:
            self.checkpoint.setdefault(cohort.operator, []).append(cohort)

    def _needed(self) -> set[str]:
        versions = {version.segment: version for known in (self.partitions, self.shadows) for version in known.values()}
        buffers = {file.file for buffer in self.buffers for file in buffer.files}
        return buffers | {name for version in versions.values() for name in version.segments}

    def forget_partitions(self, partitions: Iterable[Partition]) -> None:
        """Versions on lost nodes are gone."""
        for partition in partitions:
            self.partitions.pop(partition, None)

    def forget_all(self) -> None:
        """The driver begins again: no version, shadow or buffer is used, and their files are not needed."""
        self.partitions.clear()
        self.shadows.clear()
        self.buffers.clear()

    def forget_nodes(self, nodes: Iterable[NodeId]) -> None:
        """Buffers on lost nodes are gone; shadows are cheap to begin again."""
        lost = frozenset(nodes)
        self.buffers = [buffer for buffer in self.buffers if buffer.node not in lost]
        self.covered = changed({}, self._pairs(self.buffers))
        self.shadows.clear()
        for node in lost:
            self.files.pop(node, None)
            self.held_bytes.pop(node, None)

    def drop_buffers(self) -> None:
        """A global checkpoint is complete: nothing will be replayed from buffers."""
        self.buffers.clear()
        self.held_bytes.clear()
        self.covered = {}

    def keep_buffers_within(self, limit_bytes: int, in_use: Collection[str] = ()) -> int:
        """Drop the oldest buffers of nodes that hold too much, unless they are read; shadows will replay their epochs instead."""
        if max(self.held_bytes.values(), default=0) <= limit_bytes:
            return 0
        dropped: list[Buffered] = []
        kept: list[Buffered] = []
        for buffer in self.buffers:
            if self.held_bytes[buffer.node] <= limit_bytes or any(file.file in in_use for file in buffer.files):
                kept.append(buffer)
            else:
                self.held_bytes[buffer.node] -= buffer.size_bytes
                dropped.append(buffer)
        self.buffers = kept
        self.covered = changed(self.covered, (), self._pairs(dropped))
        return len(dropped)

    def coverage(self) -> Coverage:
        """The epochs that buffers hold, from each partition for each other."""
        return self.covered

    def _pairs(self, buffers: Iterable[Buffered]) -> Iterator[tuple[Pair, range]]:
        for buffer in buffers:
            for exchange, above, groups, epochs in buffer.covered:
                for consumer in self.program.exchanges[exchange].consumers:
                    for group in groups:
                        yield (above, Partition(consumer, KeyGroup(group))), epochs

    def _owner(self, exchange: int) -> str:
        owner = self.program.owner(self.program.exchanges[exchange].node)
        if owner is None:
            raise ValueError("expected a buffer of a keyed operator")
        return owner

    def replays(self, wanted: Mapping[Pair, range]) -> dict[NodeId, list[Replay]]:
        """Which buffers are sent again, and which of their tables; `wanted` has the epochs per pair of partitions."""
        found: dict[NodeId, list[Replay]] = {}
        sent: set[tuple[int, int, int]] = set()
        # After a roll-back a partition has produced an epoch twice, alike; what is newer is sent, and sent once.
        first = min((epochs.start for epochs in wanted.values()), default=0)
        stop = max((epochs.stop for epochs in wanted.values()), default=0)
        near = [buffer for buffer in self.buffers if buffer.span.start < stop and first < buffer.span.stop]
        for buffer in reversed(near):
            for file in buffer.files:
                take = self._taken(file, wanted, sent)
                if take:
                    found.setdefault(buffer.node, []).append(Replay(file.level, file.file, take))
        return found

    def _taken(self, file: BufferReport, wanted: Mapping[Pair, range], sent: set[tuple[int, int, int]]) -> dict[str, list[int]]:
        take: dict[str, list[int]] = {}
        for exchange, order, epoch, groups in file.tables:
            if (exchange, order, epoch) in sent:
                continue
            sent.add((exchange, order, epoch))
            above = Partition(self._owner(exchange), KeyGroup(order))
            pairs = {
                group: [(above, Partition(consumer, KeyGroup(group))) for consumer in self.program.exchanges[exchange].consumers]
                for group in groups
            }
            chosen = [group for group, feeds in pairs.items() if any(epoch in wanted.get(pair, ()) for pair in feeds)]
            if chosen:
                take[f"{exchange}/{order}/{epoch}"] = chosen
        return take
