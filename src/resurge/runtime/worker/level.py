"""One slot at one level of one job: read or receive, run the operators, send or stage, save the new state."""

import pickle
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

from resurge.connectors.contracts import Sink
from resurge.connectors.reading import read_split
from resurge.errors import JobError, ResurgeError
from resurge.model.operator import Determinism
from resurge.operators.base import Batch, EpochContext, Outcome, StatefulOperator, StatelessOperator
from resurge.operators.combining import Combiner
from resurge.operators.failures import failed
from resurge.operators.program import Node, Program
from resurge.operators.stateless import BadRows, LateSide, SourceOperator
from resurge.runtime.storage import paths
from resurge.runtime.storage.durable import DurableStore
from resurge.runtime.worker.event_times import watermark_us, without_time
from resurge.runtime.worker.messages import (
    BufferReport,
    EpochWork,
    JobPlan,
    PartitionReport,
    PartitionWork,
    SlotReport,
    Split,
    WorkKey,
)
from resurge.runtime.worker.outcomes import OutcomeId, decided
from resurge.runtime.worker.packets import Inbox, PacketWriter, merge_maxima, resend, send
from resurge.runtime.worker.partitions import PartitionStates, node_store

_encode = msgspec.msgpack.encode


@dataclass(frozen=True)
class JobCode:
    """What every task of a job needs and that does not change from epoch to epoch."""

    program: Program
    readers: Mapping[str, Any]
    sinks: Mapping[str, Sink]


class LevelTask:
    """Runs one slot at one level."""

    def __init__(self, code: JobCode, plan: JobPlan, slot: int, level: int, packets: Iterable[bytes] = ()) -> None:
        self.code = code
        self.program = code.program
        self.plan = plan
        self.slot = slot
        self.level = level
        self.inbox = Inbox(packets)
        self.report = SlotReport(slot, level)
        self.writers = [PacketWriter() for _ in plan.slots]
        self.maxima_us: dict[int, dict[str, int]] = {}
        self.is_last = level == self.program.levels - 1
        self.targets = self._targets()
        self.buffer = PacketWriter()
        self.kept = [frozenset(plan.buffered.get(e.number, ()) if level else ()) for e in self.program.exchanges]
        self.queries = _queries_by_node(self.program)
        self.late: dict[int, tuple[pl.DataFrame, ...]] = {}

    def run(self) -> list[bytes]:
        """Packets for the next level, one per slot; at the last level, the reports of all levels."""
        began, started = time.monotonic(), time.process_time()
        merge_maxima(self.maxima_us, self.inbox.maxima_us)
        # A drained job has closed everything: whatever comes later is late, and must be seen to be.
        merge_maxima(self.maxima_us, {epoch.epoch: epoch.closing_us for epoch in self.plan.epochs if epoch.closing_us})
        if not any(msgspec.msgpack.decode(report, type=SlotReport).failure for report in self.inbox.reports):
            self._attempt()
        self.report.cpu_s = time.process_time() - started
        _attribute(self.report)
        self._slow_down(began)
        self.report.began_s, self.report.ended_s = began, time.monotonic()
        self.report.maxima_us = self.maxima_us
        reports = [*self.inbox.reports, _encode(self.report)]
        if self.is_last:
            return reports
        return [
            writer.finish(self.slot, self.maxima_us, reports if target == 0 else []) for target, writer in enumerate(self.writers)
        ]

    def _slow_down(self, began: float) -> None:
        """Take as long as a node with its share of a core would: capacity is real, also on a shared machine."""
        share = self.plan.slots[self.slot].cpu_share
        if share < 1:
            time.sleep(max(0.0, self.report.cpu_s / share - (time.monotonic() - began)))

    def _attempt(self) -> None:
        try:
            if self.level == 0:
                self._read()
            else:
                self._process()
            for frame in [] if self.is_last else self.inbox.forwarded(self.program.exchanges, self.level):
                self._forward(frame)
        except ResurgeError as error:
            self.report.failure = (type(error).__name__, str(error))
        except Exception as error:
            self.report.failure = ("JobError", f"level {self.level}: {type(error).__name__}: {error}")

    def _read(self) -> None:
        work = self.plan.slots[self.slot]
        if work.expired:
            node_store(self.plan.local_root, work.node).remove(work.expired)
        epochs = {epoch.epoch: epoch for epoch in self.plan.epochs}
        for split in work.splits:
            self._read_split(split, epochs[split.epoch])

    def _read_split(self, split: Split, epoch: EpochWork) -> None:
        source = self.program.topology.operators[split.source]
        if not isinstance(source, SourceOperator):
            raise JobError(f"{split.source!r} is not a source")
        good, bad = read_split(self.code.readers[split.source], pickle.loads(split.partition), source.schema)
        good, bad = without_time(good, bad, source)
        self.report.rows_read += good.height
        self.report.bad_rows += bad.height
        self._note_time(good, source, epoch.epoch)
        frames: dict[int, pl.DataFrame] = {}
        for node in self.program.at_level(0):
            if node.operator.name == split.source:
                frames[node.number] = good
            elif isinstance(node.operator, BadRows):
                if node.operator.inputs[0] == split.source:
                    frames[node.number] = bad
            elif node.parent in frames:
                frames[node.number] = self._applied(node, frames[node.parent], epoch, split.index)
        self._send(frames, epoch, split.index)
        self._stage(frames, epoch, split.index, set())

    def _note_time(self, frame: pl.DataFrame, source: SourceOperator, epoch: int) -> None:
        if source.event_time is None or not frame.height:
            return
        highest = frame.select(pl.col(source.event_time).dt.epoch("us").max()).item()
        merge_maxima(self.maxima_us, {epoch: {source.name: highest}})

    def _process(self) -> None:
        nodes = self.program.at_level(self.level)
        names = {node.operator.name for node in nodes}
        work = [item for item in self.plan.slots[self.slot].partitions if item.operator in names]
        states = PartitionStates(self.program, self.plan, self.slot, self.level)
        reports: dict[WorkKey, PartitionReport] = {}
        for item in work:
            states.load(item)
            cursor = min(item.until, max(item.cursor, self.plan.epoch))
            reports[item.key] = PartitionReport(item.operator, item.key_group, "", [], item.shadow, cursor)
        self._resend()
        groups = sorted({item.key_group for item in work})
        for epoch in self.plan.epochs:
            for group in groups:
                takers = {item.operator: item for item in work if item.key_group == group and item.takes(epoch.epoch)}
                self._process_group(nodes, group, epoch, takers, states, reports)
        self.report.restore_s = states.restore_s
        states.save(reports)
        self._save_buffer()
        self.report.local_bytes, self.report.overflow_bytes = states.store.used()
        self.report.partitions = list(reports.values())

    def _resend(self) -> None:
        """Send again what was buffered at this level on this node."""
        for replay in self.plan.slots[self.slot].replays:
            if replay.level != self.level:
                continue
            buffer = Inbox([bytes(node_store(self.plan.local_root, self.plan.slots[self.slot].node).view(replay.file))])
            for (exchange, epoch), frames in buffer.frames.items():
                for frame in frames:
                    wanted = frozenset(replay.take.get(f"{exchange}/{frame.entry.order}/{epoch}", ()))
                    resend(frame, wanted, self.targets[exchange], self.writers)

    def _save_buffer(self) -> None:
        """Keep what partitions that are not live will need."""
        if not self.buffer.entries:
            return
        node = self.plan.slots[self.slot].node
        name = paths.local_buffer(paths.local_segment(self.plan.epoch, f"{self.plan.attempt}-{self.level}", self.slot))
        content = self.buffer.finish(self.slot, {}, [])
        node_store(self.plan.local_root, node).write(name, content)
        self.report.buffers.append(BufferReport(node, self.level, name, len(content), Inbox([content]).tables()))

    def _process_group(
        self,
        nodes: list[Node],
        group: int,
        epoch: EpochWork,
        takers: dict[str, PartitionWork],
        states: PartitionStates,
        reports: dict[WorkKey, PartitionReport],
    ) -> None:
        frames: dict[int, pl.DataFrame] = {}
        batches: dict[object, Batch] = {}
        for node in nodes:
            if isinstance(node.operator, StatefulOperator):
                work = takers.get(node.operator.name)
                if work is not None:
                    started = time.process_time()
                    inputs = [
                        self._batch(node.operator, index, group, epoch, frames, batches)
                        for index in range(len(node.operator.inputs))
                    ]
                    frames[node.number] = self._advance(node.operator, node, work, inputs, epoch, states, reports[work.key])
                    reports[work.key].cpu_s += time.process_time() - started
            elif isinstance(node.operator, LateSide):
                if node.parent in frames and node.parent in self.late:
                    frames[node.number] = self.late[node.parent][node.operator.side].select(*node.operator.given.schema)
            elif node.parent in frames:
                frames[node.number] = self._applied(node, frames[node.parent], epoch, group)
        self._send(frames, epoch, group, {name for name, item in takers.items() if item.shadow})
        self._stage(frames, epoch, group, {name for name, item in takers.items() if not item.shadow and epoch.epoch > item.shown})

    def _advance(
        self,
        operator: StatefulOperator,
        node: Node,
        work: PartitionWork,
        inputs: list[Batch],
        epoch: EpochWork,
        states: PartitionStates,
        report: PartitionReport,
    ) -> pl.DataFrame:
        """Let one partition take one epoch."""
        state = states.states[work.key]
        try:
            context = self._context(node, epoch)
            outcome = self._decided(node, epoch, work.key_group, lambda: operator.process(state, inputs, context))
        except Exception as error:
            raise failed(operator.name, f"in epoch {epoch.epoch}, key group {work.key_group}", error) from error
        states.states[work.key] = {
            name: table.apply(outcome.changes[name]) if name in outcome.changes else table for name, table in state.items()
        }
        report.rows_in += sum(batch.frame.height for batch in inputs)
        report.rows_out += outcome.output.height
        report.late_rows += outcome.late_rows
        self.late[node.number] = outcome.late
        return outcome.output

    def _batch(
        self,
        operator: StatefulOperator,
        index: int,
        group: int,
        epoch: EpochWork,
        frames: dict[int, pl.DataFrame],
        batches: dict[object, Batch],
    ) -> Batch:
        """One input of one partition; operators that read the same exchange share it."""
        feed = self.program.feeds[operator.name][index]
        if feed in batches:
            return batches[feed]
        shape = self.program.topology.shapes[operator.inputs[index]]
        combiner: Combiner | None = operator.combiner(shape) if hasattr(operator, "combiner") else None
        pieces: list[pl.DataFrame] = []
        for number in feed.exchanges:
            pieces += self.inbox.rows(number, epoch.epoch, group)
        for number in feed.nodes:
            if number in frames:
                pieces.append(combiner.combine(frames[number], shape) if combiner else frames[number])
        if combiner and len(feed.exchanges) + len(feed.nodes) > 1:
            # Each exchange may carry parts for other operators too: take those that all have.
            schema = combiner.schema(shape)
            return Batch(schema, tuple(piece.select(*schema) for piece in pieces))
        if feed.exchanges:
            schema = self.program.exchanges[feed.exchanges[0]].schema
        else:
            schema = combiner.schema(shape) if combiner else shape.schema
        batch = Batch(schema, tuple(pieces))
        if not feed.nodes:
            batches[feed] = batch
        return batch

    def _applied(self, node: Node, frame: pl.DataFrame, epoch: EpochWork, order: int) -> pl.DataFrame:
        operator = node.operator
        if not isinstance(operator, StatelessOperator):
            raise JobError(f"operator {operator.name!r} cannot be applied to a table")
        try:
            context = self._context(node, epoch)
            made = self._decided(node, epoch, order, lambda: Outcome(operator.apply(frame, context))).output
        except Exception as error:
            raise failed(operator.name, f"in epoch {epoch.epoch}", error) from error
        wanted = self.program.topology.shapes[operator.name].schema
        if made.schema != wanted:
            raise JobError(
                f"operator {operator.name!r} made columns {dict(made.schema)}; expected {dict(wanted)}, as on an empty table: "
                "let it return the same columns for every input"
            )
        return made

    def _decided(self, node: Node, epoch: EpochWork, order: int, compute: Callable[[], Outcome]) -> Outcome:
        """An outcome; one that could come out differently another time is logged before it is used."""
        if node.operator.determinism is not Determinism.ARBITRARY or self.plan.durable_url is None:
            return compute()
        identity = OutcomeId(node.operator.name, self.program.branch(node), epoch.epoch, order, epoch.plan)
        return decided(DurableStore(self.plan.durable_url), identity, compute)

    def _send(
        self, frames: Mapping[int, pl.DataFrame], epoch: EpochWork, order: int, shadows: Collection[str | None] = ()
    ) -> None:
        """Send each node's rows to the exchanges that start at it; the last writer is the buffer."""
        for exchange in self.program.exchanges:
            if exchange.node in frames and frames[exchange.node].height:
                rows = exchange.outgoing(frames[exchange.node])
                # What a shadow makes is for those in this job only.
                kept = frozenset() if self.program.owner(exchange.node) in shadows else self.kept[exchange.number]
                targets = [*self.targets[exchange.number], kept]
                key_groups = self.program.topology.key_groups
                send(exchange, rows, epoch.epoch, order, key_groups, targets, [*self.writers, self.buffer])

    def _stage(self, frames: Mapping[int, pl.DataFrame], epoch: EpochWork, order: int, showing: set[str]) -> None:
        """Stage the rows of queries whose operators show this epoch; a source's own queries show when the epoch does."""
        for number, frame in frames.items():
            for query, branch in self.queries.get(number, ()):
                owner = self.program.owner(number)
                if frame.height and (owner in showing if owner is not None else epoch.show):
                    part = f"{branch}-{order:05d}"
                    self.report.parts.append(self.code.sinks[query].stage(query, epoch.epoch, part, self.plan.attempt, frame))

    def _forward(self, frame: Any) -> None:
        entry = frame.entry
        self.writers[self.slot].add(entry.exchange, entry.epoch, entry.order, entry.key_groups, entry.ends, bytes(frame.body))

    def _context(self, node: Node, epoch: EpochWork) -> EpochContext:
        before = epoch.watermarks_us
        after = epoch.closing_us
        if after is None:
            after = dict(before)
            merge_maxima({0: after}, {0: self.maxima_us.get(epoch.epoch, {})})
        return EpochContext(epoch.epoch, watermark_us(node, before), watermark_us(node, after))

    def _targets(self) -> list[list[frozenset[int]]]:
        """For each exchange, the key groups that each slot wants of it."""
        targets = []
        for exchange in self.program.exchanges:
            wanted: list[set[int]] = [set() for _ in self.plan.slots]
            for consumer in exchange.consumers:
                for group, slot in enumerate(self.plan.routes[consumer]):
                    if slot >= 0:
                        wanted[slot].add(group)
            targets.append([frozenset(groups) for groups in wanted])
        return targets


def _attribute(report: SlotReport) -> None:
    """A partition's cost is its share of all that its task did, by the time spent in its operator."""
    measured = sum(partition.cpu_s for partition in report.partitions)
    for partition in report.partitions:
        share = partition.cpu_s / measured if measured > 0 else 1 / len(report.partitions)
        partition.cpu_s = share * report.cpu_s


def _queries_by_node(program: Program) -> dict[int, list[tuple[str, int]]]:
    found: dict[int, list[tuple[str, int]]] = {}
    for query, nodes in program.query_nodes.items():
        for branch, number in enumerate(nodes):
            found.setdefault(number, []).append((query, branch))
    return found
