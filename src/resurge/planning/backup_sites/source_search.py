"""The search of BACKUPS (algorithms 1 and 4): from the sources downstream, in rounds, by a rank of the candidates.

The algorithms that share it differ in the rank, and in what they do with the backups it chooses.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from resurge.planning.solvers.latency_graph import LatencyGraph

LARGEST_SINGLE_CHOICE = 128
"""Up to this many candidates, ranks are computed anew after each choice; beyond it, after a share of them."""


class Coverage(NamedTuple):
    """What a backup of one candidate would cover: F(v), B(v), and its distance from the sources."""

    share: float
    work: float
    distance: float


Rank = Callable[[int, Coverage], tuple[float, float]]


class SourceSearch:
    """One search from the sources to the sinks; a task is settled when its latency is known and within its bound."""

    def __init__(self, graph: LatencyGraph, rank: Rank) -> None:
        self.graph = graph
        self.rank = rank
        self.backups: set[int] = set()
        self.latency = [0.0] * len(graph.weights)
        self.is_settled = [False] * len(graph.weights)
        self.unsettled_inputs = [len(before) for before in graph.upstream]
        self.position = [0] * len(graph.weights)
        for index, task in enumerate(graph.order):
            self.position[task] = index

    def run(self) -> set[int]:
        """Advance until late tasks block the way, back up what makes them punctual, and go on."""
        late = self._advance([task for task in self.graph.order if not self.graph.upstream[task]])
        while late:
            self._make_punctual(late)
            late = self._advance(late)
        return self.backups

    def _advance(self, ready: Iterable[int]) -> list[int]:
        """Settle tasks downstream as far as the bounds allow; return the late ones that block the way."""
        waiting, late = list(ready), []
        while waiting:
            task = waiting.pop()
            self.latency[task] = self._evaluated(task)
            if self.latency[task] > self.graph.limits[task]:
                late.append(task)
                continue
            self.is_settled[task] = True
            for after in self.graph.downstream[task]:
                self.unsettled_inputs[after] -= 1
                if self.unsettled_inputs[after] == 0:
                    waiting.append(after)
        return late

    def _evaluated(self, task: int) -> float:
        inputs = [self.latency[before] for before in self.graph.upstream[task] if before not in self.backups]
        return self.graph.weights[task] + max(inputs, default=0.0)

    def _make_punctual(self, late: list[int]) -> None:
        while True:
            allowance = self._critical_allowances(late)
            if not allowance:
                return
            self._back_up(self._best_candidates(self._coverages(allowance)), set(late))

    def _critical_allowances(self, late: Iterable[int]) -> dict[int, float]:
        """For every task on a path that makes a late task late, the latency that it may have; upstream tasks last."""
        graph, latency, position = self.graph, self.latency, self.position
        allowance = {task: graph.limits[task] for task in late if latency[task] > graph.limits[task]}
        waiting = [-position[task] for task in allowance]
        heapify(waiting)
        ordered: dict[int, float] = {}
        while waiting:
            task = graph.order[-heappop(waiting)]
            ordered[task] = allowance[task]
            passes = allowance[task] - graph.weights[task]
            for before in graph.upstream[task]:
                if latency[before] > passes and before not in self.backups:
                    if before not in allowance:
                        heappush(waiting, -position[before])
                    allowance[before] = min(passes, allowance.get(before, passes))
        return ordered

    def _coverages(self, allowance: dict[int, float]) -> dict[int, Coverage]:
        """Let share and work flow down the critical paths; a task splits both evenly among those that it feeds."""
        late_inputs = {task: self._late_inputs(task, allowance) for task in allowance}
        fed = dict.fromkeys(allowance, 0)
        for inputs in late_inputs.values():
            for before in inputs:
                fed[before] += 1
        coverages: dict[int, Coverage] = {}
        for task in reversed(allowance):
            inputs = late_inputs[task]
            share = sum(coverages[before].share / fed[before] for before in inputs) if inputs else 1.0
            work = sum(coverages[before].work / fed[before] for before in inputs)
            coverages[task] = Coverage(share, work + share * self.graph.weights[task], self.latency[task])
        return {task: coverage for task, coverage in coverages.items() if self.is_settled[task]}

    def _late_inputs(self, task: int, allowance: dict[int, float]) -> list[int]:
        passes = allowance[task] - self.graph.weights[task]
        return [
            before
            for before in self.graph.upstream[task]
            if before in allowance and self.latency[before] > passes and before not in self.backups
        ]

    def _best_candidates(self, coverages: dict[int, Coverage]) -> list[int]:
        def rank(task: int) -> tuple[float, float]:
            return self.rank(task, coverages[task])

        if len(coverages) <= LARGEST_SINGLE_CHOICE:
            return [max(coverages, key=rank)]
        best = sorted(coverages, key=rank, reverse=True)[: len(coverages) // 8]
        chosen: list[int] = []
        beside: set[int] = set()
        for task in best:
            # Neighbours cover the same paths, and their ranks are out of date once one of them is chosen.
            if task not in beside:
                chosen.append(task)
                beside.update(self.graph.upstream[task], self.graph.downstream[task])
        return chosen

    def _back_up(self, chosen: Iterable[int], late: set[int]) -> None:
        """Mark backups and bring the latencies downstream of them up to date."""
        graph, position = self.graph, self.position
        self.backups.update(chosen)
        queued = {position[after] for task in chosen for after in graph.downstream[task]}
        waiting = list(queued)
        heapify(waiting)
        while waiting:
            task = graph.order[heappop(waiting)]
            if not self.is_settled[task] and task not in late:
                continue
            latency = self._evaluated(task)
            if latency == self.latency[task]:
                continue
            self.latency[task] = latency
            if self.is_settled[task] and task not in self.backups:
                for after in graph.downstream[task]:
                    if position[after] not in queued:
                        queued.add(position[after])
                        heappush(waiting, position[after])
