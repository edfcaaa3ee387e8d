"""How many nodes: more when the cluster has been too full for too long, fewer when it has been too empty, within bounds.

What is wanted is decided once per epoch, and never in the middle of a recovery. Nodes that are missing are asked for; nodes that
are too many are drained one by one and then given back. A node that joins takes lost partitions first, because the recovery
planner is asked before anything else, and load next, by the balancer.
"""

import math
from dataclasses import replace

from resurge.coordinator.commands import Emit, ReleaseNodes, RequestNodes
from resurge.coordinator.measuring import priced
from resurge.coordinator.move_requests import responded
from resurge.coordinator.policies import migration
from resurge.coordinator.state import JobState, Migration
from resurge.model.names import NodeId
from resurge.model.requests import PRECOPY, Answer, Scale, Verdict
from resurge.telemetry.events import ClusterScaled

FULL = 0.9
"""The utilisation of the whole cluster, of what nodes may spend, from which on it is too full."""
ENOUGH = 0.7
"""The utilisation that nodes are asked for, and that must be left behind when one is given back."""
WITHOUT_SCALE = "the job runs without --scale: start it with --scale MIN..MAX"


def active(state: JobState) -> list[NodeId]:
    """The nodes that are there to stay."""
    return [node for node in sorted(state.recovery.capacity) if node not in state.draining]


def requested(state: JobState, asked: Scale, now_s: float) -> JobState:
    """A user wants so many nodes."""
    bounds = state.settings.scale
    if bounds is None:
        return responded(state, asked.request, Answer(Verdict.REFUSED, WITHOUT_SCALE))
    if not bounds.least <= asked.nodes <= bounds.most:
        text = f"{asked.nodes} nodes are wanted; expected a number from {bounds.least} to {bounds.most}, as --scale has it"
        return responded(state, asked.request, Answer(Verdict.REFUSED, text))
    state = _wanting(state, asked.nodes, now_s, "a user asked for it")
    return responded(state, asked.request, Answer(Verdict.DONE, f"{asked.nodes} nodes are wanted from now on"))


def joined(state: JobState) -> JobState:
    """Nodes have come: what others have added within the bounds is wanted too."""
    bounds, count = state.settings.scale, len(active(state))
    if bounds is None or not state.scaling.wanted or count <= state.scaling.wanted:
        return state
    return replace(state, scaling=replace(state.scaling, wanted=max(state.scaling.wanted, min(count, bounds.most))))


def after_loss(state: JobState, now_s: float) -> JobState:
    """Nodes are gone: as many as before are still wanted, and one that was to be given back is needed for what was lost."""
    if (leaving := state.scaling.releasing) is not None and not state.recovery.all_live:
        state = replace(state, scaling=replace(state.scaling, releasing=None))
        is_drained = state.migration is not None and state.migration.drains == leaving
        if is_drained and state.migration is not None and not state.migration.request:
            state, is_drained = migration.given_up(state, "other nodes were lost", now_s), False
        # A drain that a user asked for goes on.
        state = state if is_drained else priced(replace(state, draining=state.draining - {leaving}))
    if state.settings.scale is None or len(active(state)) >= state.scaling.wanted:
        return state
    return _asked(state, now_s)


def proposed(state: JobState, now_s: float) -> JobState:
    """Decide how many nodes are wanted, and take the next step towards that; the same state if there is nothing to do now."""
    bounds, watch = state.settings.scale, state.scaling
    if bounds is None:
        return state
    if not watch.wanted:
        count = len(active(state))
        wanted = min(max(count, bounds.least), bounds.most)
        state = replace(state, scaling=replace(watch, wanted=wanted))
        return _asked(state, now_s) if wanted > count else state
    if watch.releasing is not None:
        return _released(state, watch.releasing, now_s)
    if state.recovery.head == watch.head:
        return state
    state = replace(state, scaling=replace(watch, head=state.recovery.head))
    if not state.recovery.all_live:
        return replace(state, scaling=replace(state.scaling, full_since_s=None, empty_since_s=None))
    return _enacted(_judged(state, now_s), now_s)


def _judged(state: JobState, now_s: float) -> JobState:
    """Whether the cluster is too full or too empty, and for how long it has been."""
    bounds, watch, nodes = state.settings.scale, state.scaling, active(state)
    assert bounds is not None
    capacity = sum(state.recovery.capacity[node] for node in nodes)
    if not nodes or capacity <= 0:
        return state
    used, count = sum(state.recovery.costs.values()), len(nodes)
    full = used > FULL * capacity
    empty = count > 1 and used < ENOUGH * capacity * (count - 1) / count
    watch = replace(
        watch,
        full_since_s=(now_s if watch.full_since_s is None else watch.full_since_s) if full else None,
        empty_since_s=(now_s if watch.empty_since_s is None else watch.empty_since_s) if empty else None,
    )
    state = replace(state, scaling=watch)
    # What was asked for and has not come yet would change the picture.
    if now_s < watch.not_before_s or count != watch.wanted or state.migration is not None:
        return state
    share = f"{used / capacity:.0%} of what {count} nodes may spend is used"
    if watch.full_since_s is not None and now_s - watch.full_since_s >= bounds.full_s and count < bounds.most:
        needed = math.ceil(used / (ENOUGH * capacity / count))
        return _wanting(state, min(bounds.most, max(count + 1, needed)), now_s, share)
    if watch.empty_since_s is not None and now_s - watch.empty_since_s >= bounds.empty_s and count > bounds.least:
        return _wanting(state, count - 1, now_s, share)
    return state


def _wanting(state: JobState, wanted: int, now_s: float, why: str) -> JobState:
    """From now on so many nodes are wanted; what follows from that is seen before anything is decided again."""
    bounds = state.settings.scale
    assert bounds is not None
    if wanted == state.scaling.wanted:
        return state
    watch = replace(state.scaling, wanted=wanted, full_since_s=None, empty_since_s=None, not_before_s=now_s + bounds.rest_s)
    state = replace(state, scaling=watch).sending(Emit(ClusterScaled(now_s, len(active(state)), wanted, why)))
    return _asked(state, now_s) if wanted > len(active(state)) else state


def _asked(state: JobState, now_s: float) -> JobState:
    """Ask for what is missing. It is a total: asking twice does no harm."""
    assert state.settings.scale is not None
    total = state.scaling.wanted + len(state.draining.intersection(state.recovery.capacity))
    state, number = state.numbered()
    watch = replace(state.scaling, asked_s=now_s)
    return replace(state, scaling=watch).sending(RequestNodes(number, total))


def _enacted(state: JobState, now_s: float) -> JobState:
    """Ask again for nodes that do not come; drain one that is too many."""
    bounds, watch, nodes = state.settings.scale, state.scaling, active(state)
    assert bounds is not None
    if len(nodes) < watch.wanted:
        return _asked(state, now_s) if now_s >= watch.asked_s + bounds.rest_s else state
    if len(nodes) == watch.wanted or state.migration is not None or now_s < watch.retry_s:
        return state
    used = dict.fromkeys(nodes, 0.0)
    for partition, known in state.recovery.statuses.items():
        if known.node in used:
            used[known.node] += state.recovery.costs.get(partition, 0.0)
    # The emptiest has least to move; of those the newest, because names count up.
    leaving = min(nodes, key=lambda node: (used[node], -nodes.index(node)))
    state = priced(replace(state, draining=state.draining | {leaving}, scaling=replace(watch, releasing=leaving)))
    return replace(state, migration=Migration("", PRECOPY, now_s, drains=leaving))


def _released(state: JobState, leaving: NodeId, now_s: float) -> JobState:
    """Give a node back once it is empty; one that could not be emptied stays, and so does one that a recovery can use."""
    bounds = state.settings.scale
    assert bounds is not None
    if state.migration is not None and state.migration.drains == leaving:
        return state
    scaling = replace(state.scaling, releasing=None, retry_s=now_s + bounds.rest_s)
    state = replace(state, scaling=scaling)
    if not state.recovery.all_live:
        # It may take what was lost meanwhile.
        return priced(replace(state, draining=state.draining - {leaving}))
    is_occupied = any(known.node == leaving for known in state.recovery.statuses.values())
    if leaving not in state.recovery.capacity or leaving not in state.draining or is_occupied:
        return state
    state, number = state.numbered()
    return replace(state, scaling=replace(scaling, retry_s=now_s)).sending(ReleaseNodes(number, (leaving,)))
