"""One slot at one level of one job: read or receive, run the operators, send or stage, save the new state."""

import pickle
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from resurge.connectors.contracts import Sink
from resurge.connectors.reading import read_split
from resurge.errors import JobError, ResurgeError
from resurge.model.operator import Determinism, StreamShape
from resurge.model.user_code import user_traceback
from resurge.operators.base import Batch, EpochContext, StatefulOperator, StatelessOperator
from resurge.operators.combining import Combiner
from resurge.operators.hashing import hash_rows, key_groups_of
from resurge.operators.program import Program, Vertex
from resurge.operators.stateless import BadRows, LateSide, SourceOperator
from resurge.runtime.worker.arrivals import load_cohorts, send_state, shipped_bytes
from resurge.runtime.worker.calls import Call, Made, StatelessCall
from resurge.runtime.worker.cpu_clock import task_cpu_s
from resurge.runtime.worker.event_times import watermark_us, without_time
from resurge.runtime.worker.grouped import Flags, Grouped, mask, together
from resurge.runtime.worker.lookups import with_lookup
from resurge.runtime.worker.messages import SOURCES, BufferReport, EpochWork, JobPlan, SlotReport, Split
from resurge.runtime.worker.outcomes import OutcomeLog
from resurge.runtime.worker.packets import SOURCE, Inbox, Origin, PacketWriter, Targets, keep, merge_maxima, resend, send
from resurge.runtime.worker.partitions import Cohort, CohortStates, node_store
from resurge.runtime.worker.parts import Parts
from resurge.storage import paths
from resurge.storage.durable import DurableStore

_encode = msgspec.msgpack.encode


@dataclass(frozen=True)
class JobCode:
    """What every task of a job needs and that does not change from epoch to epoch."""

    program: Program
    readers: Mapping[str, Any]
    sinks: Mapping[str, Sink]


class Prepared(NamedTuple):
    """One input of some key groups, as rows by key group and as the operator sees it."""

    rows: Grouped
    batch: Batch


class LevelTask:
    """Runs one slot at one level."""

    def __init__(self, code: JobCode, plan: JobPlan, slot: int, level: int, packets: Iterable[bytes] = ()) -> None:
        self.code = code
        self.program = code.program
        self.plan = plan = plan.of_slot(slot)
        self.slot = slot
        self.level = level
        self.inbox = Inbox(packets)
        self.report = SlotReport(slot, level)
        self.writers = [PacketWriter() for _ in plan.slots]
        self.maxima_us: dict[int, dict[str, int]] = {}
        self.is_last = level == self.program.levels - 1
        self.key_groups = self.program.topology.key_groups
        self.targets = self._targets()
        self.buffer = PacketWriter()
        self.kept = [mask(plan.buffered.get(e.number, ()) if level else (), self.key_groups) for e in self.program.exchanges]
        self.queries = self.program.queries_by_vertex()
        self.parts = Parts()
        self.read_s_per_byte = 0.0

    def run(self) -> list[bytes]:
        """Packets for the next level, one per slot; at the last level, the reports of all levels."""
        began, started = time.monotonic(), task_cpu_s()
        merge_maxima(self.maxima_us, self.inbox.maxima_us)
        # A drained job has closed everything: whatever comes later is late, and must be seen to be.
        merge_maxima(self.maxima_us, {epoch.epoch: epoch.closing_us for epoch in self.plan.epochs if epoch.closing_us})
        if not any(msgspec.msgpack.decode(report, type=SlotReport).failure for report in self.inbox.reports):
            self._attempt()
        self.report.cpu_s = task_cpu_s() - started
        self.report.share_cpu()
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
            self.report.parts = self.parts.staged(self.code.sinks, self.plan.attempt, f"{self.level}-{self.slot:05d}")
            for frame in [] if self.is_last else self.inbox.forwarded(self.program.exchanges, self.level):
                self._forward(frame)
        except ResurgeError as error:
            self.report.failure = (type(error).__name__, str(error))
        except Exception as error:
            self.report.failure = ("JobError", f"level {self.level}: {type(error).__name__}: {error}{user_traceback(error)}")

    def _read(self) -> None:
        work = self.plan.slots[self.slot]
        store = node_store(self.plan.local_root, work.node)
        store.remove(work.expired)
        send_state(self.program, store, work.sends, self.writers, self.report)
        epochs = {epoch.epoch: epoch for epoch in self.plan.epochs}
        for split in work.splits:
            self._read_split(split, epochs[split.epoch])

    def _read_split(self, split: Split, epoch: EpochWork) -> None:
        source = self.program.topology.operators[split.source]
        if not isinstance(source, SourceOperator):
            raise JobError(f"{split.source!r} is not a source")
        good, bad = read_split(self.code.readers[split.source], pickle.loads(split.partition), source.schema)
        good, bad = without_time(good, bad, source)
        self.report.count_rows(epoch.epoch, good.height, bad.height)
        self._note_time(good, source, epoch.epoch)
        frames: dict[int, pl.DataFrame] = {}
        for vertex in self.program.at_level(0):
            if vertex.operator.name == split.source:
                frames[vertex.number] = good
            elif isinstance(vertex.operator, BadRows):
                if vertex.operator.inputs[0] == split.source:
                    frames[vertex.number] = bad
            elif vertex.parent in frames:
                call, log = self._stateless(vertex, epoch), self._log(vertex, epoch)
                frames[vertex.number] = call.of_split(frames[vertex.parent], split.index, log)
        for exchange in self.program.exchanges:
            if exchange.vertex in frames:
                rows = exchange.outgoing(frames[exchange.vertex])
                send(exchange, rows, epoch.epoch, split.index, self.targets[exchange.number], self.writers)
        if epoch.show:
            for number, frame in frames.items():
                self._stage(number, frame, epoch)

    def _note_time(self, frame: pl.DataFrame, source: SourceOperator, epoch: int) -> None:
        if source.event_time is None or not frame.height:
            return
        highest = frame.select(pl.col(source.event_time).dt.epoch("us").max()).item()
        merge_maxima(self.maxima_us, {epoch: {source.name: highest}})

    def _process(self) -> None:
        vertices = self.program.at_level(self.level)
        names = {vertex.operator.name for vertex in vertices}
        states = CohortStates(self.program, self.plan, self.slot, self.level)
        mine = [work for work in self.plan.slots[self.slot].cohorts if work.operator in names]
        cohorts = load_cohorts(states, mine, self.inbox, self.writers[self.slot], self.report)
        self.report.shipping_s += self.read_s_per_byte * shipped_bytes(self.inbox)
        self._resend()
        for epoch in self.plan.epochs:
            takers: dict[str, list[Cohort]] = {}
            for cohort in cohorts:
                if cohort.work.takes(epoch.epoch):
                    takers.setdefault(cohort.work.operator, []).append(cohort)
            self._process_epoch(vertices, epoch, takers)
        self.report.restore_s = states.restore_s
        states.save(self.report)
        self._save_buffer()
        states.look(self.report)
        self.report.local_bytes, self.report.overflow_bytes = states.store.used()

    def _resend(self) -> None:
        """Send again what was buffered at this level on this node."""
        for replay in self.plan.slots[self.slot].replays:
            if replay.level != self.level:
                continue
            buffer = Inbox([bytes(node_store(self.plan.local_root, self.plan.slots[self.slot].node).view(replay.file))])
            wanted: dict[tuple[int, int], dict[int, list[int]]] = {}
            for place, groups in replay.take.items():
                exchange, source, epoch = map(int, place.split("/"))
                wanted.setdefault((exchange, epoch), {})[source] = groups
            for (exchange, epoch), taken in wanted.items():
                for frame in buffer.frames.get((exchange, epoch), ()):
                    resend(frame, taken, self.targets[exchange], self.writers)

    def _save_buffer(self) -> None:
        """Keep what partitions that are not live will need."""
        if not self.buffer.entries:
            return
        node = self.plan.slots[self.slot].node
        name = paths.local_buffer(paths.slot_segment(self.plan.epoch, self.plan.attempt, self.level, self.slot))
        content = self.buffer.finish(self.slot, {}, [])
        node_store(self.plan.local_root, node).write(name, content)
        self.report.buffers.append(BufferReport(node, self.level, name, len(content), Inbox([content]).tables()))

    def _process_epoch(self, vertices: list[Vertex], epoch: EpochWork, takers: dict[str, list[Cohort]]) -> None:
        """Let the key groups of this slot take one epoch."""
        rows: dict[int, Grouped] = {}
        late: dict[int, tuple[Grouped, ...]] = {}
        batches: dict[object, Prepared] = {}
        for vertex in vertices:
            if isinstance(vertex.operator, StatefulOperator):
                made = [
                    self._advance(vertex.operator, vertex, cohort, epoch, rows, batches)
                    for cohort in takers.get(vertex.operator.name, ())
                ]
                if made:
                    rows[vertex.number] = together([each.output for each in made])
                    late[vertex.number] = tuple(together(list(side)) for side in zip(*(each.late for each in made), strict=True))
            elif isinstance(vertex.operator, LateSide):
                if late.get(vertex.parent or 0):
                    mine = late[vertex.parent or 0][vertex.operator.side]
                    rows[vertex.number] = Grouped(mine.frame.select(*vertex.operator.given.schema), mine.ends)
            elif vertex.parent in rows:
                taken = self._groups_of(takers[self.program.owner(vertex.number) or ""])
                call, log = self._stateless(vertex, epoch), self._log(vertex, epoch)
                rows[vertex.number] = call.by_group(rows[vertex.parent], taken, log)
        self._send_grouped(rows, epoch, takers)
        self._stage_grouped(rows, epoch, takers)

    def _advance(
        self,
        operator: StatefulOperator,
        vertex: Vertex,
        cohort: Cohort,
        epoch: EpochWork,
        rows: Mapping[int, Grouped],
        batches: dict[object, Prepared],
    ) -> Made:
        """Let the key groups of a cohort take one epoch, in one call."""
        started = task_cpu_s()
        inputs = [self._prepared(operator, index, cohort, epoch, rows, batches) for index in range(len(operator.inputs))]
        call = Call(
            operator,
            cohort.key_groups,
            self.key_groups,
            [given.rows for given in inputs],
            [given.batch for given in inputs],
            cohort.state,
            self._context(vertex, epoch),
        )
        made = call.run(self._log(vertex, epoch))
        cohort.advance(epoch.epoch, made)
        for given in inputs:
            cohort.rows_in += given.rows.counts
        cohort.cpu_s += task_cpu_s() - started
        return made

    def _prepared(
        self,
        operator: StatefulOperator,
        index: int,
        cohort: Cohort,
        epoch: EpochWork,
        rows: Mapping[int, Grouped],
        batches: dict[object, Prepared],
    ) -> Prepared:
        """One input of a cohort; cohorts of the same key groups that read the same exchange share it."""
        feed = self.program.feeds[operator.name][index]
        shared = feed, cohort.mine.tobytes()
        if shared in batches:
            return batches[shared]
        shape = self.program.topology.shapes[operator.inputs[index]]
        combiner = operator.combiner(shape)
        found = [self.inbox.rows(number, epoch.epoch, self.key_groups) for number in feed.exchanges]
        pieces = [piece for piece in found if piece is not None]
        for number in feed.vertices:
            if number in rows:
                pieces.append(self._combined(combiner, rows[number], shape) if combiner else rows[number])
        is_mixed = combiner is not None and len(feed.exchanges) + len(feed.vertices) > 1
        if combiner and is_mixed:
            # Each exchange may carry parts for other operators too: take those that all have.
            schema = combiner.schema(shape)
            pieces = [Grouped(piece.frame.select(*schema), piece.ends) for piece in pieces]
        elif feed.exchanges:
            schema = self.program.exchanges[feed.exchanges[0]].schema
        else:
            schema = combiner.schema(shape) if combiner else shape.schema
        empty = Grouped(pl.DataFrame(schema=schema), np.zeros(self.key_groups, dtype=np.int64))
        grouped = together([piece.within(cohort.mine) for piece in pieces] or [empty])
        prepared = Prepared(grouped, Batch(schema, (grouped.frame,)))
        if not feed.vertices and not is_mixed:
            batches[shared] = prepared
        return prepared

    def _combined(self, combiner: Combiner, rows: Grouped, shape: StreamShape) -> Grouped:
        parts = combiner.combine(rows.frame, shape)
        return Grouped.by_hash(parts, hash_rows(parts, combiner.key), self.key_groups)

    def _stateless(self, vertex: Vertex, epoch: EpochWork) -> StatelessCall:
        operator = vertex.operator
        if not isinstance(operator, StatelessOperator):
            raise JobError(f"operator {operator.name!r} cannot be applied to a table")
        context = with_lookup(self._context(vertex, epoch), operator, self.plan.durable_url)
        return StatelessCall(operator, self.program.topology.shapes[operator.name].schema, context)

    def _log(self, vertex: Vertex, epoch: EpochWork) -> OutcomeLog | None:
        """Where outcomes are logged before they are used, if they could come out differently another time."""
        if vertex.operator.determinism is not Determinism.ARBITRARY or self.plan.durable_url is None:
            return None
        store, branch = DurableStore(self.plan.durable_url), self.program.branch(vertex)
        return OutcomeLog(store, vertex.operator.name, branch, epoch.epoch, epoch.plan)

    def _send_grouped(self, rows: Mapping[int, Grouped], epoch: EpochWork, takers: Mapping[str, list[Cohort]]) -> None:
        """Send each node's rows, with the key group that each comes from, to the exchanges that start at it."""
        for exchange in self.program.exchanges:
            mine = rows.get(exchange.vertex)
            if mine is None or not mine.frame.height:
                continue
            table = exchange.outgoing(mine.frame.with_columns(pl.Series(SOURCE, mine.groups, dtype=pl.UInt16)), SOURCE)
            send(exchange, table, epoch.epoch, SOURCES, self.targets[exchange.number], self.writers)
            if self.kept[exchange.number].any():
                # What a shadow makes is for those in this job only.
                owned = takers[self.program.owner(exchange.vertex) or ""]
                sources = self._groups_of(cohort for cohort in owned if not cohort.work.shadow)
                table = table.filter(pl.Series(sources[table.get_column(SOURCE).to_numpy()], dtype=pl.Boolean))
                groups = key_groups_of(hash_rows(table, exchange.key), self.key_groups)
                origin = Origin(exchange.number, epoch.epoch, SOURCES)
                keep(origin, table, groups, self.kept[exchange.number], self.buffer)

    def _groups_of(self, cohorts: Iterable[Cohort]) -> Flags:
        found = np.zeros(self.key_groups, dtype=np.bool_)
        for cohort in cohorts:
            found |= cohort.mine
        return found

    def _stage_grouped(self, rows: Mapping[int, Grouped], epoch: EpochWork, takers: Mapping[str, list[Cohort]]) -> None:
        """Stage the rows of queries, from key groups that have not shown this epoch."""
        for number in self.queries.keys() & rows.keys():
            owned = takers[self.program.owner(number) or ""]
            shown = self._groups_of(cohort for cohort in owned if not cohort.work.shadow and epoch.epoch > cohort.work.shown)
            chosen = rows[number].within(shown)
            self._stage(number, chosen.frame, epoch, np.flatnonzero(chosen.counts).tolist())

    def _stage(self, number: int, frame: pl.DataFrame, epoch: EpochWork, groups: Sequence[int] = ()) -> None:
        """Collect the rows of a node for its queries."""
        for query, branch in self.queries.get(number, ()):
            if frame.height:
                self.parts.add(query, branch, epoch.epoch, frame, groups)

    def _forward(self, frame: Any) -> None:
        entry = frame.entry
        self.writers[self.slot].add(entry.exchange, entry.epoch, entry.order, entry.key_groups, entry.ends, bytes(frame.body))

    def _context(self, vertex: Vertex, epoch: EpochWork) -> EpochContext:
        before, after = epoch.watermarks_us, epoch.closing_us
        if after is None:
            after = dict(before)
            merge_maxima({0: after}, {0: self.maxima_us.get(epoch.epoch, {})})
        return EpochContext(epoch.epoch, watermark_us(vertex, before), watermark_us(vertex, after))

    def _targets(self) -> list[Targets]:
        """For each exchange, the key groups that each slot wants of it."""
        return [
            Targets((self.plan.routes[name] for name in exchange.consumers), len(self.plan.slots), self.key_groups)
            for exchange in self.program.exchanges
        ]
