"""Where every partition's newest version is, which local files are still needed, and which buffers there are."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.model.work import Job, Pair, Replica, Role
from resurge.operators.program import Program
from resurge.runtime.driver.layouts import Usual, usual_after
from resurge.runtime.driver.slots import Slots
from resurge.runtime.worker.messages import BufferReport, CohortReport, JobPlan, Replay, SlotReport
from resurge.storage import paths
from resurge.storage.runs import SavedCohort


@dataclass
class Version:
    """The state of some key groups on a node: the local segment that describes it, and all segments it needs.

    One that was a copy is verified by the task that goes on from it.
    """

    segment: str
    segments: tuple[str, ...]
    cursor: int
    node: NodeId
    state_rows: int = 0
    state_bytes: int = 0
    was_copy: bool = False


@dataclass
class Buffered:
    """What one node kept in one attempt: the files, and from the first to the last epoch that may be in them."""

    attempt: str
    node: NodeId
    files: list[BufferReport]
    span: range


@dataclass
class Versions:
    """The driver's knowledge of what nodes hold."""

    program: Program
    shadows: dict[Partition, Version] = field(default_factory=dict)
    copies: dict[tuple[Partition, NodeId], Version] = field(default_factory=dict)
    checkpoints: dict[int, dict[str, list[SavedCohort]]] = field(default_factory=dict)
    buffers: list[Buffered] = field(default_factory=list)
    files: dict[NodeId, set[str]] = field(default_factory=dict)
    pinned: dict[str, frozenset[str]] = field(default_factory=dict)
    usual: Usual | None = None
    _others: dict[Partition, Version] = field(default_factory=dict)
    _unspread: Usual | None = None

    @property
    def partitions(self) -> dict[Partition, Version]:
        """The version of each partition; what usual epochs wrote is spread over them when somebody asks, which those do not."""
        usual, self._unspread = self._unspread, None
        if usual is not None:
            for report in usual.reports:
                for cohort in report.cohorts:
                    self._adopt_cohort(cohort, report, usual.slots.nodes[report.slot])
        return self._others

    def of(self, replica: Replica) -> Version:
        """The version of a replica."""
        if replica.role is Role.COPY:
            return self.copies[replica.partition, replica.node]
        return (self.shadows if replica.is_shadow else self.partitions)[replica.partition]

    def beside(self, plan: JobPlan, reports: Iterable[SlotReport]) -> list[Version]:
        """The versions of partitions that a job has not advanced."""
        if self._unspread is not None and plan.layout is self._unspread.layout:
            known = self._others
        else:
            advanced = {
                Partition(cohort.operator, KeyGroup(group))
                for report in reports
                for cohort in report.cohorts
                if not (cohort.shadow or cohort.copy)
                for group in cohort.key_groups
            }
            known = {partition: version for partition, version in self.partitions.items() if partition not in advanced}
        # Key groups of one call share a version, which counts once.
        return list({id(version): version for version in known.values()}.values())

    def sizes_bytes(self) -> dict[Partition, int]:
        """About how large each partition's state is: key groups of one version have equal shares of it."""
        sharing = Counter(map(id, self.partitions.values()))
        return {partition: version.state_bytes // sharing[id(version)] for partition, version in self.partitions.items()}

    def expired(self) -> dict[NodeId, list[str]]:
        """The files of each node that nothing needs any more."""
        needed = self._needed().union(*self.pinned.values())
        return {node: sorted(files - needed) for node, files in self.files.items()}

    def pin(self, plan: JobPlan) -> None:
        """A job begins: what it reads stays until it has ended, whatever is forgotten meanwhile."""
        read = [file for slot in plan.slots for replay in slot.replays for file in [replay.file]]
        if plan.layout is not None and self.usual is not None:
            read += [file for report in self.usual.reports for file in report.segments]
        for slot in plan.slots:
            for work in slot.cohorts:
                # Key groups of one segment have all its files in common.
                partition = Partition(work.operator, KeyGroup(work.key_groups[0]))
                version = (self.shadows if work.shadow else self.partitions).get(partition)
                if work.arrives or work.copy:
                    version = self.copies.get((partition, NodeId(slot.node)))
                if version is not None and version.segment == work.segment:
                    read += version.segments
            for sending in slot.sends:
                read += self.partitions[Partition(sending.operator, KeyGroup(sending.key_groups[0]))].segments
        self.pinned[plan.attempt] = frozenset(read)

    def abandoned(self, plan: JobPlan, nodes: Collection[str]) -> None:
        """An attempt came to nothing: what it may have written on these nodes is not needed, nor what it read."""
        self.pinned.pop(plan.attempt, None)
        for index, slot in enumerate(plan.slots):
            if slot.node in nodes:
                for level in range(1, self.program.levels):
                    name = paths.slot_segment(plan.epoch, plan.attempt, level, index)
                    self.files.setdefault(NodeId(slot.node), set()).update((name, paths.local_buffer(name)))

    def adopt(self, job: Job, plan: JobPlan, reports: Sequence[SlotReport], slots: Slots) -> None:
        """An attempt succeeded: its versions are the newest, and what it was told to remove is gone."""
        self.pinned.pop(plan.attempt, None)
        for slot in plan.slots:
            self.files.setdefault(NodeId(slot.node), set()).difference_update(slot.expired)
        for report in reports:
            node = NodeId(plan.slots[report.slot].node)
            self.files[node].update(report.segments)
            self.files[node].update(buffer.file for buffer in report.buffers)
        self.usual = usual_after(self.usual, job, plan, reports, slots)
        if self.usual is not None and plan.layout is self.usual.layout:
            self._adopt_usual(self.usual)
            return
        for report in reports:
            for cohort in report.cohorts:
                self._adopt_cohort(cohort, report, NodeId(plan.slots[report.slot].node))

    def _adopt_usual(self, usual: Usual) -> None:
        """All of an assignment have a new version: it is known by its slots, not by each of them."""
        if self._unspread is None or self._unspread.layout is not usual.layout:
            live = usual.assignment.partitions
            self._others = {partition: version for partition, version in self.partitions.items() if partition not in live}
        self._unspread = usual

    def buffer(self, attempt: str, reports: Iterable[SlotReport]) -> None:
        """Remember what an attempt buffered, node by node."""
        files: dict[NodeId, list[BufferReport]] = {}
        for report in reports:
            for file in report.buffers:
                files.setdefault(NodeId(file.node), []).append(file)
        for node, mine in files.items():
            epochs = [epoch for file in mine for _, _, epoch, _ in file.tables]
            self.buffers.append(Buffered(attempt, node, mine, range(min(epochs, default=0), max(epochs, default=-1) + 1)))

    def _adopt_cohort(self, cohort: CohortReport, report: SlotReport, node: NodeId) -> None:
        version = Version(report.segment, tuple(report.segments), cohort.cursor, node, cohort.state_rows, cohort.state_bytes)
        known = self.shadows if cohort.shadow else self.partitions
        for group in cohort.key_groups:
            partition = Partition(cohort.operator, KeyGroup(group))
            if cohort.copy:
                self.copies[partition, node] = version
            else:
                known[partition] = version

    def change_roles(self, promoted: Iterable[tuple[Partition, NodeId]], demoted: Iterable[tuple[Partition, NodeId]]) -> None:
        """Copies are the primaries' versions from now on, and those of primaries that leave a node are copies."""
        for place in demoted:
            self.copies[place] = self.partitions[place[0]]
        for place in promoted:
            self.partitions[place[0]] = replace(self.copies.pop(place), was_copy=True)

    def restore_from(self, epoch: int, saved: Iterable[SavedCohort]) -> None:
        """What partitions without a version that stand at an epoch begin with: the checkpoint of that epoch."""
        found = self.checkpoints[epoch] = dict[str, list[SavedCohort]]()
        for cohort in saved:
            found.setdefault(cohort.operator, []).append(cohort)

    def keep_checkpoints(self, epochs: Collection[int]) -> None:
        """Nobody restores from others than these."""
        self.checkpoints = {epoch: saved for epoch, saved in self.checkpoints.items() if epoch in epochs}

    def _needed(self) -> set[str]:
        kept = (*self._others.values(), *self.shadows.values(), *self.copies.values())
        versions = {version.segment: version for version in kept}
        buffers = {file.file for buffer in self.buffers for file in buffer.files}
        usual = {name for report in (self._unspread.reports if self._unspread else ()) for name in report.segments}
        return buffers | usual | {name for version in versions.values() for name in version.segments}

    def keep_only(
        self,
        partitions: Collection[Partition],
        shadows: Collection[Partition],
        nodes: Collection[NodeId],
        copies: Collection[tuple[Partition, NodeId]] = (),
    ) -> None:
        """Forget the versions that nobody will ask for, and all that was on nodes that are gone."""
        self._others = {known: version for known, version in self.partitions.items() if known in partitions}
        self.shadows = {known: version for known, version in self.shadows.items() if known in shadows}
        self.copies = {known: version for known, version in self.copies.items() if known in copies}
        self.buffers = [buffer for buffer in self.buffers if buffer.node in nodes]
        for node in self.files.keys() - frozenset(nodes):
            self.files.pop(node)

    def drop_buffers(self, through: int) -> None:
        """A global checkpoint is complete: nothing up to its epoch will be replayed from buffers."""
        self.buffers = [buffer for buffer in self.buffers if buffer.span.stop > through + 1]

    def drop_buffers_of(self, attempt: str, node: NodeId) -> None:
        """What an attempt kept on a node is not needed; shadows will replay its epochs instead."""
        self.buffers = [buffer for buffer in self.buffers if (buffer.attempt, buffer.node) != (attempt, node)]

    def _owner(self, exchange: int) -> str:
        owner = self.program.owner(self.program.exchanges[exchange].vertex)
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
