"""Which nodes a user has drained, told so that the next driver understands it.

A node's name is Spark's number of an executor, which another application gives to another one. What stays is the failure domain: a
host, or what a cluster calls its node. So it is remembered if all nodes of it are drained, until one of its nodes goes.
"""

from collections.abc import Mapping

from resurge.coordinator.inputs import Member
from resurge.coordinator.state import JobState
from resurge.model.names import NodeId


def domains(state: JobState) -> frozenset[str]:
    """The failure domains whose nodes are all drained; not those of a drain under way, nor of a node that scaling gives back."""
    under_way = {state.scaling.releasing, state.migration.drains if state.migration is not None else None}
    done = state.draining - under_way
    others = {member.domain for node, member in state.members.items() if node not in done}
    return frozenset(state.members[node].domain for node in done if node in state.members) - others - {""}


def again(members: Mapping[NodeId, Member], drained: frozenset[str]) -> frozenset[NodeId]:
    """The nodes that take nothing because their failure domain was drained; none if no other node were left."""
    found = frozenset(node for node, member in members.items() if member.domain in drained)
    return found if len(found) < len(members) else frozenset()


def joined(state: JobState, joined: Mapping[NodeId, Member]) -> frozenset[NodeId]:
    """The nodes that take nothing once these have come."""
    left = {node: member for node, member in state.members.items() if node not in state.draining}
    return state.draining | again({**left, **joined}, state.drained)


def without(state: JobState, gone: frozenset[NodeId]) -> frozenset[str]:
    """What is remembered of earlier drains once these nodes have gone: whoever comes back may be used."""
    return state.drained - {state.members[node].domain for node in gone if node in state.members}
