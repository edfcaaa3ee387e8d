"""Which catch-up step is taken next: in the background, before the next live epoch, or in one job with it. Pure.

The decision is the same for the Spark driver and for the simulator.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from resurge.model.names import NodeId, Partition
from resurge.protocols.catch_up import MOST_EPOCHS_PER_STEP, CatchUp, Coverage, lagging, next_step, shadows_needed
from resurge.protocols.recovery import Phase, RecoveryState
from resurge.protocols.step_reading import epochs_read, readers
from resurge.protocols.step_timing import StepTiming

BACKGROUND_INTERVALS = 1.6
"""How many intervals a background job may take on a node without live partitions. Its result counts only when it ends."""
RECOVERY_FIRST_FROM = 4
"""A live epoch waits for one step if the recovering queries are worth this many times the live ones: few readers notice."""
MOST_BACKGROUND_JOBS = 4
"""Each works at one depth of the topology; more of them would wait for each other's nodes."""
SHARED_NODE_FACTOR = 1.5
"""On a node with live partitions, a step is assumed to take at least this many times its cost, so that epochs are not late."""
PIGGYBACK_SHARE = 0.4
"""A live epoch that takes lagging partitions along may become longer by this part of what it usually takes."""
EARLY_SHARE = 0.5
"""A live epoch that takes partitions along may begin this part of an interval before it is due."""
STEPS_TO_THE_HEAD = 4
"""A background step takes at least one part in so many of the lag. On nodes with live partitions, steps of two epochs do not gain on
the head where each is for hundreds of partitions; live epochs are late less often if the lag is gone sooner."""
READING_SHARE = 0.1
"""Nobody reads the sources for a step longer than this part of an interval, if enough nodes can help: live epochs go on meanwhile."""
LEAST_EPOCHS_PER_STEP = 2
"""One live epoch may pass between two steps, so that steps of one epoch would never come nearer to the head."""


@dataclass(frozen=True)
class StepChoice:
    """Chooses the next catch-up step.

    `shadows` are the cursors of the shadows that exist; `under_way` are the steps of the background jobs that run now.
    """

    recovery: RecoveryState
    coverage: Coverage
    shadows: Mapping[Partition, int]
    timing: StepTiming
    under_way: Sequence[CatchUp] = ()

    @cached_property
    def largest_step(self) -> CatchUp | None:
        """As many epochs as one step can take; None if no partition is lagging."""
        return self._next(MOST_EPOCHS_PER_STEP)

    @cached_property
    def in_flight(self) -> frozenset[Partition]:
        """The partitions that a background job advances now."""
        return frozenset(partition for step in self.under_way for partition in step.partitions)

    @property
    def is_idle(self) -> bool:
        """True if no query is live: an epoch would publish nothing and only increase the lag of all partitions."""
        return not self.recovery.live and not self.recovery.graph.has_source_queries

    @cached_property
    def recovery_comes_first(self) -> bool:
        """True if the next live epoch is delayed by one catch-up step, or, while no query is live, by all of them."""
        return self.is_idle or (not self.timing.taken and not self.timing.was_late and recovery_comes_first(self.recovery))

    @property
    def runs_in_background(self) -> bool:
        """True if steps run as background jobs, False if they must end before the next live epoch."""
        return self.timing.is_concurrent and not self.recovery_comes_first

    @cached_property
    def final_step(self) -> CatchUp | None:
        """The step that brings nearly caught-up partitions to the head; the live epoch can take it along.

        Partitions are chosen by value per cost, as many as the live epoch has time for.
        """
        if self.timing.is_late:
            # It has waited for a step already: both together would be too much for those that are live.
            return None
        near = nearly_caught_up(self.recovery, self.in_flight)
        step = self._next(LEAST_EPOCHS_PER_STEP, among=near) if near else None
        if step is None or set(step.cursors().values()) != {self.recovery.head}:
            return None
        # Without buffers, their output would be replayed for other partitions. A shadow serves all of its receivers together.
        apart = self._without_shadows(step) if self.recovery.is_buffering else {}
        if not apart:
            return step if step.partitions.keys() >= set(lagging(self.recovery)) else None
        spare = PIGGYBACK_SHARE * self.timing.usual_s / (self.timing.unit_s or 1.0)
        few = piggybacked(self.recovery, apart, self.timing.cost.factor, spare)
        return step if len(few) == len(step.partitions) else self._next(LEAST_EPOCHS_PER_STEP, among=few)

    def _without_shadows(self, step: CatchUp) -> dict[Partition, range]:
        """The partitions of a step, with their epochs, that no shadow feeds, directly or through others."""
        fed = set(self._fed_by_shadows(step.partitions) if step.shadows else ())
        for partition, upstream in self.recovery.graph.upstream.items():
            if upstream & fed and partition in step.partitions:
                fed.add(partition)
        return {partition: taken for partition, taken in step.partitions.items() if partition not in fed}

    def background_steps(self, budget_s: float) -> list[CatchUp]:
        """The background jobs that begin now.

        Upstream and downstream partitions advance in separate jobs at the same time: what the upstream ones have processed is
        in buffers. Partitions whose input is not buffered advance in one job. A nearly caught-up partition gets a step that
        ends before the next live epoch if there is time; otherwise the live epoch takes it along.
        """
        near, steps = self.final_step, [self.final_step_before_epoch(budget_s)]
        waiting = [partition for partition in lagging(self.recovery) if partition not in self.in_flight]
        if near is not None:
            # Their nodes stay free for them.
            taken = {self.recovery.statuses[partition].node for partition in near.partitions}
            waiting = [partition for partition in waiting if self.recovery.statuses[partition].node not in taken]
        depth = depths(self.recovery, self.in_flight.union(waiting))
        joint = self._joint_step(depth)
        if not self.recovery.is_buffering or joint is not None:
            steps.append((joint or self._background_step(waiting, budget_s)) if waiting and not self.under_way else None)
        else:
            steps += self._by_depth(waiting, depth, budget_s)
        found = [step for step in steps if step is not None and step.longest]
        if found or self.under_way or not waiting or near is not None:
            return found
        # In separate jobs each would wait for another one.
        together = self._background_step(waiting, budget_s)
        return [together] if together is not None else []

    def final_step_before_epoch(self, budget_s: float) -> CatchUp | None:
        """The final step, if it ends before the next live epoch is due, or within the latency slack after that."""
        near = self.final_step
        is_soon = near is not None and self._takes_s(near) <= budget_s + self.timing.waiting_slack_s
        return near if is_soon and budget_s > 0 else None

    def _by_depth(self, waiting: Iterable[Partition], depth: Mapping[Partition, int], budget_s: float) -> list[CatchUp]:
        """One step per depth in the topology, and one for the partitions that shadows feed.

        The lowest depth is first: it reads the buffers of the nodes above it.
        """
        statuses, steps, together = self.recovery.statuses, list[CatchUp | None](), list[Partition]()
        busy = {statuses[partition].node for partition in self.in_flight}
        shared = {statuses[partition].node for partition in self.recovery.live}
        highest: dict[NodeId | None, tuple[int, bool]] = {}
        for partition in waiting:
            node = statuses[partition].node
            # Nodes with live partitions have little time before the next epoch: their steps do not wait for tasks of other nodes.
            mine = (depth[partition], node in shared)
            highest[node] = min(mine, highest.get(node, mine))
        for level in sorted(set(highest.values()), reverse=True):
            group = [p for p in waiting if highest[statuses[p].node] == level and statuses[p].node not in busy]
            fed = {statuses[partition].node for partition in self._fed_by_shadows(group)}
            together += [partition for partition in group if statuses[partition].node in fed]
            steps.append(
                self._step_beside(busy, [partition for partition in group if statuses[partition].node not in fed], budget_s)
            )
        if together and not any(step.shadows for step in self.under_way):
            steps.append(self._background_step(together, budget_s))
        return [step for step in steps if step is not None][: max(0, MOST_BACKGROUND_JOBS - len(self.under_way))]

    def _step_beside(self, busy: Collection[NodeId | None], group: Collection[Partition], budget_s: float) -> CatchUp | None:
        """A step for those of a group that need no buffers of busy nodes: these send only when the step that they work for has ended."""
        step, statuses = self._background_step(group, budget_s), self.recovery.statuses
        blocked = {below for above, below in step.buffered if statuses[above].node in busy} if step is not None else set()
        return (
            self._background_step([partition for partition in group if partition not in blocked], budget_s) if blocked else step
        )

    def _background_step(self, among: Collection[Partition], budget_s: float) -> CatchUp | None:
        step = self._next(MOST_EPOCHS_PER_STEP, among=among)
        if step is None or not step.longest:
            return None
        more = self._epochs_in_background(step, budget_s)
        if step.shadows:
            # Where the shadows end, buffers begin: from there on upstream and downstream partitions advance in separate jobs.
            last, statuses = max(taken[-1] for taken in step.shadows.values()), self.recovery.statuses
            more = {p: min(count, max(LEAST_EPOCHS_PER_STEP, last - statuses[p].cursor)) for p, count in more.items()}
        step = self._next(LEAST_EPOCHS_PER_STEP, more, among)
        return step if step is not None and step.longest else None

    def _epochs_in_background(self, step: CatchUp, budget_s: float) -> dict[Partition, int]:
        """How many epochs each partition may take in a background job.

        A node without live partitions can spend all of its time on it. On the other nodes the tasks of the next live epoch, which is
        due after the budget, may have to wait: their steps are short, and are not assumed to be cheaper for taking several epochs.
        A step that ends before the live epoch begins makes room for the next one.
        """
        recovery, timing, live = self.recovery, self.timing, self._live_loads
        own = loads(recovery, (*step.partitions, *step.shadows))
        reading_s = self._reading_s(step, own)
        each_s = {node: max(used * timing.unit_s + reading_s, 1e-9) for node, used in own.items()}
        room_s = {
            node: budget_s + timing.latency_slack_s if live.get(node) else BACKGROUND_INTERVALS * timing.interval_s
            for node in own
        }
        factors = {node: max(SHARED_NODE_FACTOR, timing.cost.factor) if live.get(node) else timing.cost.factor for node in own}
        fitting = {node: room_s[node] / (each_s[node] * factors[node]) for node in own}
        early_s = budget_s - timing.cost.overhead_s
        taking_s = {node: each_s[node] * timing.cost.factor for node in own if live.get(node)}
        early = {node: int(early_s / taken_s) for node, taken_s in taking_s.items() if early_s >= taken_s}
        usual = {node: max(LEAST_EPOCHS_PER_STEP, int(min(count, MOST_EPOCHS_PER_STEP))) for node, count in fitting.items()}
        nodes = {partition: recovery.statuses[partition].node for partition in step.partitions}
        lags = {p: recovery.head - recovery.statuses[p].cursor for p in nodes}
        least = {p: min(lag // STEPS_TO_THE_HEAD, MOST_EPOCHS_PER_STEP) for p, lag in lags.items()}
        return {
            partition: max(least[partition], min(usual.get(node, LEAST_EPOCHS_PER_STEP), early.get(node, MOST_EPOCHS_PER_STEP)))
            for partition, node in nodes.items()
            if node is not None
        }

    def _fed_by_shadows(self, group: Collection[Partition]) -> list[Partition]:
        """The partitions of a group whose input is not completely buffered."""
        until = shadows_needed(self.recovery, self.coverage, group)
        upstream, statuses = self.recovery.graph.upstream, self.recovery.statuses
        return [p for p in group if any(until.get(above, 0) > statuses[p].cursor for above in upstream[p])]

    def _joint_step(self, depth: Mapping[Partition, int]) -> CatchUp | None:
        """One step for all lagging partitions if they feed each other and the lag is small: separately they would never meet the head."""
        levels = max(depth.values(), default=0)
        farthest = max((self.recovery.head - self.recovery.statuses[partition].cursor for partition in depth), default=0)
        reach = LEAST_EPOCHS_PER_STEP + levels
        return self._next(reach, among=depth) if levels > 1 and farthest <= reach else None

    def step_before_epoch(self, budget_s: float | None) -> CatchUp | None:
        """The step that ends before the next live epoch is due, or within the latency slack after that."""
        if self.largest_step is None or budget_s is None or self.is_idle:
            return self.largest_step
        least = max(0, LEAST_EPOCHS_PER_STEP - self.timing.taken)
        limit_s = max(budget_s + self.timing.latency_slack_s, self.timing.interval_s if self.recovery_comes_first else 0.0)
        return self._at_most(epochs_per_step(limit_s, self.timing.cost.overhead_s, self.epoch_s(self.largest_step), least))

    def step_with_epoch(self) -> CatchUp | None:
        """The step that runs in one job with the next live epoch."""
        recovery, timing, step = self.recovery, self.timing, self.largest_step
        if step is None:
            return None
        if self.is_idle or (self.recovery_comes_first and self.under_way):
            return None
        if self.recovery_comes_first:
            # The live queries are worth little: the epoch may take an interval longer if that makes a partition live.
            step = self.step_before_epoch(0.0)
            return step if step is not None and recovery.head in step.cursors().values() else None
        if timing.is_concurrent or self.under_way:
            return self.final_step
        if has_room(timing, self.epoch_s(step)):
            return None
        return self._at_most(epochs_beside(recovery, step, timing.latency_slack_s / (timing.unit_s or 1.0)))

    def is_early(self, budget_s: float) -> bool:
        """True if the next live epoch begins before it is due, because it takes lagging partitions along."""
        return self.runs_in_background and budget_s <= EARLY_SHARE * self.timing.interval_s and self.final_step is not None

    def epoch_s(self, step: CatchUp) -> float:
        """How long a step takes for each of its epochs."""
        return self.timing.cost.factor * self.work_s(step)

    def _takes_s(self, step: CatchUp) -> float:
        return self.timing.cost.overhead_s + step.longest * self.epoch_s(step)

    def work_s(self, step: CatchUp) -> float:
        """How long the busiest node of a step would take for one live epoch of the same partitions, and for reading its input."""
        own = loads(self.recovery, (*step.partitions, *step.shadows))
        return self.timing.unit_s * max(own.values(), default=0.0) + self._reading_s(step, own)

    def readers(self, step: CatchUp) -> frozenset[NodeId]:
        """The nodes that help a step to read the sources."""
        return self._readers(step, loads(self.recovery, (*step.partitions, *step.shadows)))

    def _readers(self, step: CatchUp, own: Collection[NodeId]) -> frozenset[NodeId]:
        total_s = self.timing.reading_s * epochs_read(self.recovery, step)
        return (
            readers(self.recovery, own, total_s, READING_SHARE * self.timing.interval_s, self._live_loads)
            if total_s
            else frozenset()
        )

    def _reading_s(self, step: CatchUp, own: Collection[NodeId]) -> float:
        """How long a step reads for each of its epochs."""
        capacity = self.recovery.capacity
        able = sum(capacity.get(node, 0.0) for node in {*own, *self._readers(step, own)})
        return self.timing.reading_s * epochs_read(self.recovery, step) / max(1, step.longest) / able if able else 0.0

    @cached_property
    def _live_loads(self) -> dict[NodeId, float]:
        return loads(self.recovery, self.recovery.live)

    def _at_most(self, epochs: int) -> CatchUp | None:
        return self._next(epochs) if epochs else None

    def _next(
        self,
        most_epochs: int,
        more_epochs: Mapping[Partition, int] | None = None,
        among: Collection[Partition] | None = None,
    ) -> CatchUp | None:
        return next_step(self.recovery, self.coverage, self.shadows, most_epochs, more_epochs, among)


def loads(recovery: RecoveryState, partitions: Iterable[Partition]) -> dict[NodeId, float]:
    """The load that partitions put on their nodes, as a fraction of each node's capacity."""
    used: dict[NodeId, float] = {}
    # In a fixed order: sums of fractions depend on it.
    for partition in sorted(partitions):
        node = recovery.statuses[partition].node
        if node is not None and recovery.capacity.get(node):
            used[node] = used.get(node, 0.0) + recovery.costs.get(partition, 0.0) / recovery.capacity[node]
    return used


def epochs_beside(recovery: RecoveryState, step: CatchUp, spare: float) -> int:
    """How many epochs of a step fit into one job with a live epoch, if that may take `spare` of a node's capacity longer.

    Nodes that are less busy than the busiest one have time left.
    """
    live = loads(recovery, recovery.live)
    longest = max(live.values(), default=0.0) + spare
    each = loads(recovery, (*step.partitions, *step.shadows))
    fitting = min(((longest - live.get(node, 0.0)) / used for node, used in each.items() if used > 0), default=float("inf"))
    return int(min(fitting + 1e-9, MOST_EPOCHS_PER_STEP))


def piggybacked(recovery: RecoveryState, near: Mapping[Partition, range], factor: float, spare: float) -> frozenset[Partition]:
    """The nearly caught-up partitions that a live epoch takes along, within `spare` of a node's capacity; at least one group.

    Whole queries come first, by priority per cost; then single partitions, upstream first.
    """
    statuses, used, chosen = recovery.statuses, loads(recovery, recovery.live), set[Partition]()
    limit = max(used.values(), default=0.0) + spare
    alone = {p: loads(recovery, [p]) for p in near}
    extra = {p: {node: load * (1 + factor * len(near[p])) for node, load in mine.items()} for p, mine in alone.items()}

    def cost(group: Iterable[Partition]) -> dict[NodeId, float]:
        found: dict[NodeId, float] = {}
        for partition in group:
            for node, load in extra[partition].items():
                found[node] = found.get(node, 0.0) + load
        return found

    missing = ((need.priority, need.partitions - recovery.live) for need in recovery.graph.queries.values())
    whole = [(priority, group) for priority, group in missing if group and group <= near.keys()]
    whole.sort(key=lambda item: -item[0] / max(sum(cost(item[1]).values()), 1e-9))
    for group in (*(group for _, group in whole), *({p} for p in recovery.graph.upstream if p in near)):
        more = group - chosen
        above = (other for p in more for other in recovery.graph.upstream[p])
        if any(statuses[other].phase is not Phase.LIVE and other not in chosen | group for other in above):
            continue
        loaded = cost(more)
        if not chosen or all(used.get(node, 0.0) + load <= limit for node, load in loaded.items()):
            chosen |= more
            for node, load in loaded.items():
                used[node] = used.get(node, 0.0) + load
    return frozenset(chosen)


def recovery_comes_first(recovery: RecoveryState) -> bool:
    """True if the recovering queries outweigh the live ones enough to delay the next live epoch by one catch-up step."""
    working, all_of_them = recovery.worth
    return all_of_them - working > RECOVERY_FIRST_FROM * working


def has_room(timing: StepTiming, epoch_s: float) -> bool:
    """True if separate steps fit between two live epochs, so that these need not take any along."""
    left_s = timing.interval_s - timing.usual_s + timing.latency_slack_s
    return left_s >= timing.cost.overhead_s + LEAST_EPOCHS_PER_STEP * epoch_s


def depths(recovery: RecoveryState, group: Collection[Partition]) -> dict[Partition, int]:
    """The depth of each partition within a group: 1 for those that nothing else in the group feeds."""
    found: dict[Partition, int] = {}
    for partition, upstream in recovery.graph.upstream.items():
        if partition in group:
            found[partition] = 1 + max((found[above] for above in upstream if above in found), default=0)
    return found


def nearly_caught_up(recovery: RecoveryState, in_flight: Collection[Partition]) -> frozenset[Partition]:
    """The partitions with so little lag that a live epoch can take them along.

    A background step ends one epoch behind the head, so the final step runs together with a live epoch. Partitions whose node
    also works for farther lagging ones are left out, and so is everything below them: live epochs would wait for them.
    """
    waiting = [p for p in lagging(recovery) if p not in in_flight]
    near = {p for p in waiting if recovery.head - recovery.statuses[p].cursor <= LEAST_EPOCHS_PER_STEP}
    above = {p: [other for other in recovery.graph.upstream[p] if recovery.statuses[other].phase is not Phase.LIVE] for p in near}
    is_settled = False
    while not is_settled:
        busy = {recovery.statuses[p].node for p in (*in_flight, *waiting) if p not in near}
        left = {p for p in near if recovery.statuses[p].node not in busy and near.issuperset(above[p])}
        is_settled, near = left == near, left
    return frozenset(near)


def epochs_per_step(budget_s: float, overhead_s: float, epoch_s: float, least: int = LEAST_EPOCHS_PER_STEP) -> int:
    """How many epochs a step may take: as many as fit into the budget, and never fewer than `least`.

    >>> epochs_per_step(2.0, 1.0, 0.2), epochs_per_step(0.1, 1.0, 0.2), epochs_per_step(9.0, 1.0, 0.2)
    (5, 2, 16)
    """
    return max(least, min(MOST_EPOCHS_PER_STEP, int((budget_s - overhead_s) / max(epoch_s, 1e-3) + 1e-9)))
