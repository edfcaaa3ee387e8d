"""A driver in virtual time: the loop of the real one, over the same protocols, strategies and planners.

Live epoch, then catching up in bounded steps until the next is due; a node that dies in mid-job voids the attempt, and
the work is decided anew; a global checkpoint when all is whole and due.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import simpy

from resurge.model.names import NodeId, Partition
from resurge.protocols import recovery
from resurge.protocols.catch_up import CatchUp
from resurge.protocols.checkpoint import is_due
from resurge.protocols.epoch import Pace, is_full, observed, row_limit, wait_s
from resurge.protocols.recovery import Facts, Phase
from resurge.scheduling import Strategy, after_loss, everything_down, is_same_question, schedule, with_costs
from resurge.simulator.buffers import KnownBuffers
from resurge.simulator.catching_up import LAST_EPOCH, CatchingUp, KnownShadow, Steps
from resurge.simulator.checkers import check_step
from resurge.simulator.journal import Commit, Journal, Planned
from resurge.simulator.story import Story
from resurge.simulator.world import Job, Pair, Shown, Task, World


@dataclass(frozen=True)
class DriverOptions:
    """What a job is run with."""

    strategy: Strategy
    checkpoint_interval: int = 10
    is_checked: bool = True
    is_concurrent: bool = True


class Driver:
    """One driver's life; what it knows of nodes is what it was told."""

    def __init__(self, env: simpy.Environment, world: World, journal: Journal, story: Story, options: DriverOptions) -> None:
        self.env = env
        self.world = world
        self.journal = journal
        self.story = story
        self.options = options
        self.strategy = options.strategy
        self.timing = world.timing
        self.graph = world.workload.graph
        self.pace = Pace()
        self.limit: int | None = None
        self.is_full = False
        self.behind = CatchingUp(self)
        self.joining: CatchUp | None = None
        self.asked: Facts | None = None
        self.restore_s = 0.0
        self.with_state: set[Partition] = set()
        self.shadows: dict[Partition, KnownShadow] = {}
        self.buffers = KnownBuffers()
        self.death = env.event()
        self.job_ends_s: float | None = None
        facts = everything_down(self.graph, {}, journal.checkpoint, journal.head, journal.shown(self.graph.upstream))
        self.facts = self._membership(with_costs(facts, world.workload.costs))

    def run(self, is_over: Callable[["Driver"], bool]) -> Steps:
        """Go on from where the last driver was, until told that it is over."""
        self.journal.generation += 1
        self.story.started(self.env.now, self.facts)
        self.observe()
        while self.catching_up() and not self.facts.live:
            yield from self.behind.step()
        while not is_over(self):
            began_s = self.env.now
            yield from self.step()
            yield from self._fill(began_s)

    # Nodes

    def node_died(self) -> None:
        """Wake a job that runs on a node which has just died."""
        death, self.death = self.death, self.env.event()
        death.succeed()

    def observe(self) -> None:
        """See which nodes have gone or come, and let come back what can."""
        before = self.facts
        self._after_change(before, self._membership(before))

    def _membership(self, facts: Facts) -> Facts:
        members = self.world.members(self.env.now)
        lost = [node for node in facts.capacity if node not in members]
        changed = after_loss(facts, lost, self.strategy) if lost else facts
        if len(members) > self.strategy.nodes_wanted:
            # A blocking recovery waits for as many nodes as there ever were.
            self.strategy = replace(self.strategy, nodes_wanted=len(members))
        joined = {node: capacity for node, capacity in members.items() if node not in changed.capacity}
        return recovery.nodes_joined(changed, joined) if joined else changed

    def _lost(self, nodes: frozenset[NodeId]) -> None:
        self._after_change(self.facts, after_loss(self.facts, nodes, self.strategy))

    def _after_change(self, before: Facts, after: Facts) -> None:
        gone = frozenset(before.capacity) - frozenset(after.capacity)
        if after is before and not after.of_phase(Phase.DOWN, Phase.STALLED):
            return
        if gone:
            self.buffers.forget_nodes(gone)
            self.shadows.clear()
        for partition in after.of_phase(Phase.DOWN):
            self.with_state.discard(partition)
            self.world.states.pop(partition, None)
        self.stand(after)
        self.story.changed(self.env.now, before, after)
        if after.capacity and after.of_phase(Phase.DOWN, Phase.STALLED):
            if is_same_question(after, self.asked):
                return
            planned = schedule(after, self.strategy)
            self.asked = after if planned.standing is after.standing else None
            self.story.planned(self.env.now, after, planned)
            for partition in recovery.moved(after, planned):
                self.with_state.discard(partition)
                self.world.states.pop(partition, None)
            self.stand(planned)

    def stand(self, after: Facts) -> None:
        before, self.facts = self.facts, after
        if self.options.is_checked and after is not before:
            check_step(before, after, self.world, self.strategy)

    # Live epochs

    def step(self) -> Steps:
        """Run the next epoch if there is input."""
        self.behind.land()
        self.observe()
        while self.behind.is_waited_for():
            yield from self.behind.step(0.0)
            self.observe()
        self.behind.go_on()
        if self.journal.pending is None:
            start_s = self._reached_s()
            self.limit = row_limit(self.pace, self.timing.max_rows_per_epoch)
            end_s = min(self.env.now, start_s + self.limit / self.timing.rows_per_s)
            if end_s <= start_s:
                return
            self.journal.plan(self.facts.head + 1, Planned(start_s, end_s))
        yield from self._run_pending()

    def _reached_s(self) -> float:
        newest = self.journal.planned.get(self.facts.head)
        return newest.end_s if newest else self.journal.reached_s

    def _run_pending(self) -> Steps:
        epoch, began_s = self.facts.head + 1, self.env.now
        job: Job = yield from self.attempt(lambda: self._live_job(epoch))
        shown = self.world.run(job)
        self.adopt(job)
        took_s, step = self.env.now - began_s, self.joining
        if step is not None:
            self.behind.commit(step, Shown(tuple(part for part in shown.parts if part[1] < epoch)), took_s, is_midway=True)
        self._commit(epoch, Shown(tuple(part for part in shown.parts if part[1] == epoch)), took_s, is_usual=step is None)
        if job.is_checkpoint:
            self._publish(epoch)

    def _live_job(self, epoch: int) -> Job:
        """All live partitions take one epoch, and with them those that reach the head; what others will need is buffered."""
        self.joining = step = self.behind.beside()
        facts = self.facts
        after = facts if step is None else recovery.advanced(facts, step.cursors())
        stepping = step.partitions if step is not None else {}
        live = tuple(self.task(partition) for partition in after.of_phase(Phase.LIVE) if partition not in stepping)
        behind = self.behind.job(step) if step is not None else None
        if behind is not None:
            nodes = frozenset(facts.capacity)
            return Job((*behind.epochs, epoch), (*behind.tasks, *live), nodes, behind.replays, behind.buffered)
        is_checkpoint = facts.is_whole and is_due(epoch, self.options.checkpoint_interval, facts.checkpoint)
        return Job((epoch,), live, frozenset(facts.capacity), {}, self.buffered(facts), is_checkpoint)

    def buffered(self, after: Facts) -> tuple[Pair, ...]:
        """For whom output is buffered: all that are not live after the job."""
        if not after.is_buffering:
            return ()
        absent = after.of_phase(Phase.DOWN, Phase.STALLED, Phase.CATCHING_UP)
        return tuple((above, below) for below in absent for above in sorted(self.graph.upstream[below]))

    def adopt(self, job: Job) -> None:
        """What a job has brought about on the nodes."""
        for task in job.tasks:
            if task.is_shadow:
                self.shadows[task.partition] = KnownShadow(task.node, task.until)
            else:
                self.with_state.add(task.partition)
        self.buffers.keep(job)

    def task(self, partition: Partition, until: int = LAST_EPOCH) -> Task:
        known = self.facts.standing[partition]
        if known.node is None:
            raise ValueError(f"{partition} has no node")
        return Task(partition, known.node, known.cursor, until, known.shown, begins_anew=partition not in self.with_state)

    def _commit(self, epoch: int, shown: Shown, took_s: float, *, is_usual: bool) -> None:
        self.journal.commit(Commit(epoch, dict.fromkeys(self.facts.live, epoch), shown.parts))
        self.world.sink.show(shown.parts)
        before = self.facts
        planned = self.journal.planned[epoch]
        rows = round(planned.span_s * self.timing.rows_per_s)
        self.is_full = is_full(rows, self.limit)
        # An epoch beside which others caught up tells little of what epochs cost, unless it was too long even so.
        if is_usual or took_s > self.timing.interval_s:
            self.pace = observed(self.pace, rows, took_s, self.timing.interval_s, is_whole=before.is_whole)
        self.stand(recovery.epoch_done(before, epoch))
        lag = round((self.env.now - planned.end_s) * self.timing.rows_per_s)
        self.story.epoch(self.env.now, took_s, before, self.facts, rows={"read": rows, "lag": lag})
        self.journal.epoch_done(epoch)

    def _publish(self, epoch: int) -> None:
        before = self.facts
        self.world.save_checkpoint(epoch)
        self.journal.checkpointed(epoch)
        self.buffers.clear()
        self.stand(recovery.checkpointed(before, epoch))
        self.story.checkpointed(self.env.now, self.timing.checkpoint_s, before, self.facts)

    # Catching up

    def catching_up(self) -> bool:
        """Whether some partition is behind and on its way."""
        return bool(self.facts.of_phase(Phase.CATCHING_UP))

    # Jobs

    def attempt(self, work: Callable[[], Job | None]) -> Steps:
        """Run a job until an attempt succeeds; after a loss of nodes the work is decided anew."""
        while True:
            yield from self._wait_for_nodes()
            job = work()
            if job is None:
                return None
            lost: frozenset[NodeId] = yield from self._run(job)
            if not lost:
                return job
            self._lost(lost)

    def _run(self, job: Job) -> Steps:
        """Let a job take its time; a death among its nodes voids it as soon as it is noticed."""
        took_s, self.restore_s = self.world.duration_s(job, self.spans_s(job))
        self.job_ends_s = self.env.now + took_s
        noticed_s = self.world.first_loss_noticed_s(job.nodes)
        while noticed_s is None and self.env.now < self.job_ends_s:
            yield self.env.timeout(self.job_ends_s - self.env.now) | self.death
            noticed_s = self.world.first_loss_noticed_s(job.nodes)
        if noticed_s is not None and noticed_s > self.env.now:
            yield self.env.timeout(noticed_s - self.env.now)
        self.job_ends_s = None
        members = self.world.members(self.env.now)
        return frozenset(node for node in job.nodes if node not in members)

    def spans_s(self, job: Job) -> dict[int, float]:
        return {epoch: self.journal.planned[epoch].span_s for epoch in job.epochs}

    def _wait_for_nodes(self) -> Steps:
        """Losing all nodes keeps the driver waiting, not dead."""
        if not self.facts.capacity:
            self.story.waiting(self.env.now, self.facts)
        while not self.facts.capacity:
            yield self.env.timeout(self.timing.poll_s)
            self.observe()

    def _fill(self, began_s: float) -> Steps:
        """Until the next epoch is due: catch up in bounded steps, else wait; always at least one step."""
        interval_s = 0.0 if self.is_full else self.timing.interval_s
        while True:
            left_s = wait_s(began_s, self.env.now, interval_s)
            has_stepped = False
            if self.catching_up():
                has_stepped = yield from self.behind.step(left_s)
                self.observe()
            due_s = wait_s(began_s, self.env.now, interval_s)
            if due_s <= 0 or self.behind.is_early(due_s):
                return
            if not has_stepped:
                yield self.env.timeout(min(left_s, self.timing.poll_s))
                self.observe()
