"""What simulated users ask for: any operator, key groups and node, now and then wrong ones."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from resurge.model import requests
from resurge.model.names import NodeId
from resurge.model.requests import CPA, CPAL, DIRECT, PRECOPY, Answer, Balance, Drain, Move, Scale, Verdict
from resurge.protocols.recovery import RecoveryState
from resurge.simulator.faults import Ask, Wanted

WRONG = 0.05
WAYS_WANTED = {Wanted.MOVE_DIRECTLY: DIRECT, Wanted.MOVE_BY_CPA: CPA, Wanted.MOVE_BY_CPAL: CPAL}


@dataclass
class Requests:
    """What a driver was asked, and how it answered; a node that was drained may be let go."""

    asked: dict[str, requests.Ask] = field(default_factory=dict)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    releases: dict[str, Callable[[NodeId], None]] = field(default_factory=dict)

    def answered(self, request: str, answer: Answer) -> None:
        """A driver has answered."""
        self.answers.setdefault(request, []).append(answer)
        asked, release = self.asked[request], self.releases.get(request)
        if answer.verdict is Verdict.DONE and isinstance(asked, Drain) and release is not None:
            release(asked.node)


def ask_of(fault: Ask, recovery: RecoveryState, request: str) -> requests.Ask:
    """The request, by the chance of its own."""
    rng = random.Random(fault.seed)
    node = _node(rng, recovery)
    if fault.wanted in (Wanted.DRAIN, Wanted.RELEASE):
        return Drain(request, node)
    if fault.wanted in (Wanted.BALANCE, Wanted.DRY_RUN):
        return Balance(request, is_dry_run=fault.wanted is Wanted.DRY_RUN)
    if fault.wanted is Wanted.SCALE:
        return Scale(request, rng.randint(1, 8))
    partitions = list(recovery.graph.upstream)
    operator = rng.choice(partitions).operator
    groups = [int(partition.key_group) for partition in partitions if partition.operator == operator]
    chosen = rng.sample(groups, rng.randint(0, len(groups)))
    if rng.random() < WRONG:
        operator, chosen = rng.choice((("nobody", chosen), (operator, [10**6])))
    return Move(request, operator, node, sorted(chosen), WAYS_WANTED.get(fault.wanted, PRECOPY))


def _node(rng: random.Random, recovery: RecoveryState) -> NodeId:
    up = sorted(recovery.capacity)
    return rng.choice(up) if up and rng.random() > WRONG else NodeId("nowhere")
