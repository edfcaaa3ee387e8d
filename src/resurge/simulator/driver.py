"""A driver in virtual time: the loop of the real one, over the same protocols, strategies and planners.

Live epoch, then catching up in bounded steps until the next is due; a node that dies in mid-job voids the attempt, and
the work is decided anew; a global checkpoint when all is whole and due.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import simpy

from resurge.model.names import NodeId, Partition
from resurge.protocols import recovery
from resurge.protocols.catch_up import (
    LEAST_EPOCHS_PER_STEP,
    MOST_EPOCHS_PER_STEP,
    CatchUp,
    epochs_aloft,
    epochs_beside,
    epochs_per_step,
    has_room,
    is_pressing,
    load,
    nearly_there,
    next_step,
    patience_s,
    smoothed_overhead_s,
)
from resurge.protocols.checkpoint import is_due
from resurge.protocols.epoch import Pace, observed, row_limit, wait_s
from resurge.protocols.recovery import Facts, Phase
from resurge.scheduling import Strategy, after_loss, everything_down, schedule, with_costs
from resurge.simulator.buffers import KnownBuffers
from resurge.simulator.checkers import check_step
from resurge.simulator.journal import Commit, Journal, Planned
from resurge.simulator.story import Story
from resurge.simulator.world import Job, Pair, Shown, Task, World

LAST_EPOCH = 2**62

Steps = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True)
class DriverOptions:
    """What a job is run with."""

    strategy: Strategy
    checkpoint_interval: int = 10
    is_checked: bool = True
    is_concurrent: bool = True


@dataclass(frozen=True)
class KnownShadow:
    """Where a shadow is, and what it has taken."""

    node: NodeId
    cursor: int


@dataclass
class Flight:
    """A step that runs while live epochs go on: what was decided, from which facts, and when it ended, if it did."""

    step: CatchUp
    before: Facts
    job: Job
    started_s: float
    restore_s: float
    ended_s: float | None = None

    def is_void(self, facts: Facts) -> bool:
        """Whether a partition of the step, or a node, has been lost meanwhile."""
        moved = any(facts.standing[partition] != self.before.standing[partition] for partition in self.step.partitions)
        return moved or not self.job.nodes <= facts.capacity.keys()


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
        self.overhead_s = self.timing.job_overhead_s
        self.joining: CatchUp | None = None
        self.restore_s = 0.0
        self.taken = 0
        self.flight: Flight | None = None
        self.is_losing = False
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
            yield from self.catch_up()
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
        self._stand(after)
        self.story.changed(self.env.now, before, after)
        if after.capacity and after.of_phase(Phase.DOWN, Phase.STALLED):
            planned = schedule(after, self.strategy)
            self.story.planned(self.env.now, after, planned)
            self._stand(planned)

    def _stand(self, after: Facts) -> None:
        before, self.facts = self.facts, after
        if self.options.is_checked and after is not before:
            check_step(before, after, self.world, self.strategy)

    # Live epochs

    def step(self) -> Steps:
        """Run the next epoch if there is input."""
        self._land()
        self.observe()
        while self.catching_up() and is_pressing(self.facts) and self._beside() is None:
            yield from self.catch_up()
            self.observe()
        if self.journal.pending is None:
            start_s = self._reached_s()
            limit = row_limit(self.pace, self.timing.interval_s, None)
            longest_s = float("inf") if limit is None else limit / self.timing.rows_per_s
            end_s = min(self.env.now, start_s + longest_s)
            if end_s <= start_s:
                return
            self.journal.plan(self.facts.head + 1, Planned(start_s, end_s))
        yield from self._run_pending()

    def _reached_s(self) -> float:
        newest = self.journal.planned.get(self.facts.head)
        return newest.end_s if newest else self.journal.reached_s

    def _run_pending(self) -> Steps:
        epoch, began_s = self.facts.head + 1, self.env.now
        job: Job = yield from self._attempt(lambda: self._live_job(epoch))
        shown = self.world.run(job)
        self._adopt(job)
        took_s, step = self.env.now - began_s, self.joining
        if step is not None:
            self._commit_catch_up(step, Shown(tuple(part for part in shown.parts if part[1] < epoch)), took_s, is_midway=True)
        self._commit(epoch, Shown(tuple(part for part in shown.parts if part[1] == epoch)), took_s, is_usual=step is None)
        if job.is_checkpoint:
            self._publish(epoch)

    def _live_job(self, epoch: int) -> Job:
        """All live partitions take one epoch, and with them those that reach the head; what others will need is buffered."""
        if self.catching_up() and self._next() is None:
            self._stand(recovery.advanced(self.facts, {}))
        self.joining = step = self._beside()
        self.taken = 0 if step is None else step.longest
        facts = self.facts
        after = facts if step is None else recovery.advanced(facts, step.cursors())
        stepping = step.partitions if step is not None else {}
        live = tuple(self._task(partition) for partition in after.of_phase(Phase.LIVE) if partition not in stepping)
        behind = self._catch_up_job(step) if step is not None else None
        if behind is not None:
            nodes = frozenset(facts.capacity)
            return Job((*behind.epochs, epoch), (*behind.tasks, *live), nodes, behind.replays, behind.buffered)
        is_checkpoint = facts.is_whole and is_due(epoch, self.options.checkpoint_interval, facts.checkpoint)
        return Job((epoch,), live, frozenset(facts.capacity), {}, self._buffered(facts), is_checkpoint)

    def _buffered(self, after: Facts) -> tuple[Pair, ...]:
        """For whom output is buffered: all that are not live after the job."""
        if not after.is_buffering:
            return ()
        absent = after.of_phase(Phase.DOWN, Phase.STALLED, Phase.CATCHING_UP)
        return tuple((above, below) for below in absent for above in sorted(self.graph.upstream[below]))

    def _adopt(self, job: Job) -> None:
        """What a job has brought about on the nodes."""
        for task in job.tasks:
            if task.is_shadow:
                self.shadows[task.partition] = KnownShadow(task.node, task.until)
            else:
                self.with_state.add(task.partition)
        self.buffers.keep(job)

    def _task(self, partition: Partition, until: int = LAST_EPOCH) -> Task:
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
        # An epoch beside which others caught up tells little of what epochs cost, unless it was too long even so.
        if is_usual or took_s > self.timing.interval_s:
            self.pace = observed(self.pace, rows, took_s, self.timing.interval_s)
        self._stand(recovery.epoch_done(before, epoch))
        lag = round((self.env.now - planned.end_s) * self.timing.rows_per_s)
        self.story.epoch(self.env.now, took_s, before, self.facts, rows={"read": rows, "lag": lag})
        self.journal.epoch_done(epoch)

    def _publish(self, epoch: int) -> None:
        before = self.facts
        self.world.save_checkpoint(epoch)
        self.journal.checkpointed(epoch)
        self.buffers.clear()
        self._stand(recovery.checkpointed(before, epoch))
        self.story.checkpointed(self.env.now, self.timing.checkpoint_s, before, self.facts)

    # Catching up

    def catching_up(self) -> bool:
        """Whether some partition is behind and on its way."""
        return bool(self.facts.of_phase(Phase.CATCHING_UP))

    def catch_up(self, budget_s: float | None = None) -> Steps:
        """One bounded step for the partitions that are behind; False if there is no time for one now, or one is under way."""
        began_s = self.env.now
        taken: list[CatchUp] = []
        is_urgent = budget_s is None or is_pressing(self.facts)
        if self.flight is not None:
            while is_urgent and self.flight.ended_s is None:
                yield self.env.timeout(self.timing.poll_s)
            return self._land()
        if self._next() is None:
            self._stand(recovery.advanced(self.facts, {}))
            return True
        if self._flies() and budget_s is not None and not is_urgent:
            self._launch(budget_s)
            return False

        def work() -> Job | None:
            step = self._next_step(budget_s)
            taken[:] = [step] if step else []
            return self._catch_up_job(step) if step else None

        job: Job | None = yield from self._attempt(work)
        if job is None:
            return False
        shown = self.world.run(job)
        self._adopt(job)
        self.taken += taken[0].longest
        self._commit_catch_up(taken[0], shown, self.env.now - began_s)
        return True

    def _flies(self) -> bool:
        """Whether steps run while live epochs go on: where that can be, and as long as it gains on them."""
        return self.options.is_concurrent and not self.is_losing

    def _launch(self, budget_s: float) -> None:
        """Begin a step that runs while live epochs go on, unless the next one can take it as quickly."""
        step = self._next()
        if step is None:
            return
        left = nearly_there(self.facts, step)
        if left and self.overhead_s + left * self._epoch_s(step) > budget_s:
            return
        interval_s = self.timing.interval_s
        epochs = epochs_aloft(self.facts, step, interval_s, self._patience_s(), interval_s * self.timing.headroom)
        step = self._next(epochs) or step
        job = self._catch_up_job(step)
        took_s, restore_s = self.world.duration_s(job, self._spans_s(job))
        self.flight = Flight(step, self.facts, job, self.env.now, restore_s)
        self.env.process(self._fly(self.flight, took_s))

    def _fly(self, flight: Flight, took_s: float) -> Steps:
        yield self.env.timeout(took_s)
        noticed_s = self.world.first_loss_noticed_s(flight.job.nodes)
        if noticed_s is not None and noticed_s > self.env.now:
            yield self.env.timeout(noticed_s - self.env.now)
        flight.ended_s = self.env.now

    def _land(self) -> bool:
        """Take what a step brought that ran meanwhile, if it has ended; False if none has."""
        flight = self.flight
        if flight is None or flight.ended_s is None:
            return False
        self.flight = None
        is_lost = self.world.first_loss_noticed_s(flight.job.nodes) is not None
        if is_lost or flight.is_void(self.facts):
            self.observe()
            return True
        self.is_losing = flight.step.longest <= self.facts.head - flight.before.head
        shown = self.world.run(flight.job)
        self._adopt(flight.job)
        self.restore_s = flight.restore_s
        self._commit_catch_up(flight.step, shown, flight.ended_s - flight.started_s)
        return True

    def _next(self, most_epochs: int = MOST_EPOCHS_PER_STEP) -> CatchUp | None:
        cursors = {partition: shadow.cursor for partition, shadow in self.shadows.items()}
        return next_step(self.facts, self.buffers.coverage(), cursors, most_epochs)

    def _next_step(self, budget_s: float | None) -> CatchUp | None:
        step = self._next()
        if step is None or budget_s is None or is_pressing(self.facts):
            return step
        least = max(0, LEAST_EPOCHS_PER_STEP - self.taken)
        epochs = epochs_per_step(budget_s + self._patience_s(), self.overhead_s, self._epoch_s(step), least)
        return self._next(epochs) if epochs else None

    def _beside(self) -> CatchUp | None:
        """The step that is taken in one job with the next epoch, if one is."""
        step = self._next() if self.flight is None else None
        if step is None:
            return None
        timing, facts, usual_s = self.timing, self.facts, self.pace.took_s
        if is_pressing(facts):
            # Hardly anybody waits for the epoch, so that a step which brings somebody to the head always fits.
            return step if facts.head in step.cursors().values() else None
        if self._flies():
            left = nearly_there(facts, step)
            return self._next(left) if left else None
        if has_room(timing.interval_s, usual_s, self.overhead_s, self._epoch_s(step)):
            return None
        epochs = epochs_beside(facts, step, self._patience_s() / (timing.interval_s * timing.headroom))
        return self._next(epochs) if epochs else None

    def _patience_s(self) -> float:
        return patience_s(self.timing.interval_s, self.pace.took_s)

    def _epoch_s(self, step: CatchUp) -> float:
        return load(self.facts, step) * self.timing.interval_s * self.timing.headroom

    def _catch_up_job(self, step: CatchUp) -> Job:
        """The partitions that catch up and the shadows that feed them; buffers feed what shadows do not."""
        facts = self.facts
        after = recovery.advanced(facts, step.cursors())
        order = sorted(facts.capacity)
        tasks = [
            self._task(partition, LAST_EPOCH if after.standing[partition].phase is Phase.LIVE else taken[-1])
            for partition, taken in step.partitions.items()
        ]
        for index, (partition, taken) in enumerate(sorted(step.shadows.items())):
            # A shadow runs beside its partition, so that one route serves both where both are in one job.
            shadow = self.shadows.get(partition) if partition in step.shadows_kept else None
            node = facts.standing[partition].node or (shadow.node if shadow else order[index % len(order)])
            if shadow is not None and shadow.node != node:
                shadow = None
            cursor = shadow.cursor if shadow else facts.checkpoint
            tasks.append(Task(partition, node, cursor, taken[-1], LAST_EPOCH, True, shadow is None))
        senders = [facts.standing[above].node for above, _ in step.buffered]
        nodes = frozenset(node for node in (*(task.node for task in tasks), *senders) if node is not None)
        return Job(tuple(step.epochs), tuple(tasks), nodes, step.buffered, self._buffered(after))

    def _commit_catch_up(self, step: CatchUp, shown: Shown, took_s: float, *, is_midway: bool = False) -> None:
        before = self.facts
        if not is_midway:
            self.overhead_s = smoothed_overhead_s(self.overhead_s, took_s, step, self._epoch_s(step))
        cursors = step.cursors()
        if shown.parts:
            self.journal.commit(Commit(step.epochs[-1], cursors, shown.parts))
            self.world.sink.show(shown.parts)
        after = recovery.advanced(before, cursors)
        if is_midway:
            # The nodes have taken the live epoch too; facts and nodes agree when that is committed.
            self.facts = after
        else:
            self._stand(after)
        if not self.catching_up():
            self.shadows.clear()
            self.world.shadows.clear()
            self.is_losing = False
        self.story.catch_up(self.env.now, took_s, step, before, self.facts, restore_s=self.restore_s, is_joined=is_midway)
        self.story.changed(self.env.now, before, self.facts)

    # Jobs

    def _attempt(self, work: Callable[[], Job | None]) -> Steps:
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
        took_s, self.restore_s = self.world.duration_s(job, self._spans_s(job))
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

    def _spans_s(self, job: Job) -> dict[int, float]:
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
        while True:
            left_s = wait_s(began_s, self.env.now, self.timing.interval_s)
            has_stepped = False
            if self.catching_up():
                has_stepped = yield from self.catch_up(left_s)
                self.observe()
            if wait_s(began_s, self.env.now, self.timing.interval_s) <= 0:
                return
            if not has_stepped:
                yield self.env.timeout(min(left_s, self.timing.poll_s))
                self.observe()
