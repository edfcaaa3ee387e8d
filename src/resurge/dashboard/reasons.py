"""What happened, in a line; and why, in a few: every decision explained from the event that tells of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from resurge.model.names import query_of
from resurge.telemetry import events
from resurge.telemetry.wording import bytes_in_words, given_up_in_words, seconds_in_words

if TYPE_CHECKING:
    from resurge.dashboard.model import JobState

NAMED = 6
COMPARED = 40
STRATEGIES = {
    "incremental": "take what fits into the capacity that is free now, so that the sum of the priorities is as large as possible",
    "blocking": "wait for as many nodes as there ever were, then bring everything back",
    "eager": "put everything on the nodes that are left, whatever their load",
    "source-replay": "roll everything back to the last checkpoint and bring it back at once",
}


@dataclass(frozen=True)
class Incident:
    """Something that happened: a line, and the reason as lines and as a table with a header."""

    id: int
    at_s: float
    kind: str
    text: str
    why: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


def incident(number: int, event: events.Event, job: "JobState") -> Incident | None:
    """An event as an incident, or None for one that is no news."""
    found = _reported(event, job)
    if found is None:
        return None
    kind, text, why, table = found
    return Incident(number, event.at_s, kind, text, tuple(why), tuple(table))


Reported = tuple[str, str, list[str], list[tuple[str, ...]]]


def _reported(event: events.Event, job: "JobState") -> Reported | None:
    if isinstance(event, events.JobStarted):
        return "started", _started(event), _why_started(event), []
    if isinstance(event, events.JobStopped):
        return "stopped", f"the driver stopped after epoch {event.epoch:,}", [event.reason or "It was asked to stop."], []
    if isinstance(event, events.NodesKilled):
        return "killed", f"{_listed(event.nodes)} killed", ["An experiment killed these nodes. The driver does not know yet."], []
    if isinstance(event, events.NodeLost):
        return "lost", f"{job.called(event.node)} lost, with {_counted(event.partitions, 'partition')}", _why_lost(event, job), []
    if isinstance(event, events.NodeJoined):
        return "joined", f"{job.called(event.node)} joined", _why_joined(event), []
    if isinstance(event, events.NodeSuspected):
        return (
            "suspected",
            f"{job.called(event.node)} has not answered for {seconds_in_words(event.unanswered_s)}",
            _why_suspected(event),
            [],
        )
    if isinstance(event, events.NodeResponded):
        return (
            "responded",
            f"{job.called(event.node)} answers again, after {seconds_in_words(event.unanswered_s)}",
            ["Jobs that use it go on."],
            [],
        )
    if isinstance(event, events.RecoveryPlanned):
        return "planned", _plan_text(event), _why_planned(event), _plan_table(event, job)
    if isinstance(event, events.QueriesChanged):
        return _queries_changed(event, job)
    if isinstance(event, events.BufferingSwitched):
        return "buffering", f"buffering {'on' if event.is_on else 'off'}", [_why_buffering(event)], []
    if isinstance(event, events.MoveStarted):
        return (
            "moving",
            f"{_counted(len(event.partitions), 'partition')} begin to move",
            _why_moving(event),
            _move_table(event, job),
        )
    if isinstance(event, events.MoveEnded):
        return "moved", _moved(event), [event.failure or "They went on from where they were; nothing was run again."], []
    if isinstance(event, events.ClusterScaled):
        return "scaled", f"{event.wanted} nodes are wanted instead of {event.nodes}", [_why_scaled(event)], []
    if isinstance(event, events.WaitingForNodes):
        return (
            "waiting",
            "no node is left: the driver waits for one",
            ["Epochs go on as soon as a node joins. Nothing is lost."],
            [],
        )
    if isinstance(event, events.PartitionsGivenUp):
        why = "They found no node for so long that more input was kept for them than --most-epochs-kept allows."
        return "warned", given_up_in_words(event), [why, "They go on from the newest checkpoint, with their older state."], []
    if isinstance(event, events.Warned):
        return "warned", event.message, [], []
    return None


def _started(event: events.JobStarted) -> str:
    again = f", going on after epoch {event.resumed_epoch:,}" if event.resumed_epoch else ""
    return f"driver generation {event.generation} started on {event.master} with {_counted(len(event.nodes), 'node')}{again}"


def _why_started(event: events.JobStarted) -> list[str]:
    if not event.resumed_epoch:
        return ["A new job: there was nothing at its checkpoint URL."]
    behind = event.resumed_epoch - event.checkpoint_epoch
    return [
        f"The journal names the checkpoint of epoch {event.checkpoint_epoch:,} and commits up to epoch {event.resumed_epoch:,}.",
        f"State is restored from that checkpoint; {_counted(behind, 'epoch')} after it are run again from logged offsets.",
        "Drivers of earlier generations can no longer write: the next journal record is this driver's.",
    ]


def _why_lost(event: events.NodeLost, job: "JobState") -> list[str]:
    checkpoint = job.checkpoint.epoch if job.checkpoint is not None else (job.started.checkpoint_epoch if job.started else 0)
    head = job.newest.epoch if job.newest is not None else checkpoint
    held = job.nodes[event.node].load if event.node in job.nodes else None
    lines = [
        "Its executor ended, or was declared dead. The current epoch is run again without it.",
        f"Its partitions restart from the checkpoint of epoch {checkpoint:,} and take {_counted(head - checkpoint, 'epoch')} again.",
    ]
    if held is not None and held.partitions:
        most = sorted(held.partitions.items(), key=lambda item: (-item[1], item[0]))
        lines.append(f"It held {_listed([f'{name} ({count})' for name, count in most])}.")
    if event.is_correlated:
        lines.append(
            "Several nodes were lost since the last checkpoint: live partitions now buffer output for those that are down."
        )
    return lines


def _why_suspected(event: events.NodeSuspected) -> list[str]:
    return [
        "It may be paused, cut off or overloaded. Jobs that use it wait for it.",
        f"After {seconds_in_words(event.timeout_s)} without an answer it is declared dead, and its partitions are recovered.",
    ]


def _why_joined(event: events.NodeJoined) -> list[str]:
    return [
        f"Its Python worker is warm. It may spend {event.capacity:.2f} CPU seconds per second on partitions.",
        "The planner is asked again: what did not fit before may fit now.",
    ]


def _plan_text(event: events.RecoveryPlanned) -> str:
    queries = sorted({query_of(name) for name in event.queries})
    nodes = len(set(event.partitions.values()))
    what = f"{_listed(queries)} may come back" if queries else "partitions that several queries share come back"
    return f"plan: {what}; {_counted(len(event.partitions), 'partition')} on {_counted(nodes, 'node')}"


def _why_planned(event: events.RecoveryPlanned) -> list[str]:
    lines = []
    if event.strategy:
        lines.append(f"Strategy {event.strategy}: {STRATEGIES.get(event.strategy, 'as configured')}.")
    if event.free:
        free = sum(event.free.values())
        lines.append(f"{_counted(len(event.free), 'node')} had {free:.2f} CPU seconds per second free in all.")
    left = sorted(set(event.needs) - {query_of(name) for name in event.queries})
    if left:
        lines.append(f"{_listed(left)} did not fit, or only in part, and wait for capacity.")
    lines.append(f"The planner took {seconds_in_words(event.took_s)}.")
    return lines


def _plan_table(event: events.RecoveryPlanned, job: "JobState") -> list[tuple[str, ...]]:
    """What was chosen from: every failed query with its priority, what it needed and what became of it."""
    if not event.needs:
        return []
    chosen: dict[str, int] = {}
    for name in event.queries:
        chosen[query_of(name)] = chosen.get(query_of(name), 0) + 1
    rows = []
    for query, need in event.needs.items():
        priority = job.queries[query].priority if query in job.queries else 0
        per_cost = priority / need.cpu_s_per_s if need.cpu_s_per_s else float("inf")
        back = f"comes back, {chosen[query]} of {job.key_groups} parts" if query in chosen else "waits"
        worth = "-" if per_cost == float("inf") else f"{per_cost:,.1f}"
        rows.append(
            (query not in chosen, -per_cost, (query, str(priority), str(need.partitions), f"{need.cpu_s_per_s:.3f}", worth, back))
        )
    header = ("query", "priority", "partitions missing", "CPU s/s needed", "priority per CPU s/s", "decision")
    return [header, *(row for _, _, row in sorted(rows)[:COMPARED])]


def _queries_changed(event: events.QueriesChanged, job: "JobState") -> Reported | None:
    if event.down:
        names = sorted({query_of(name) for name in event.down})
        why = [
            f"{_counted(len(event.down), 'query partition')} of {_counted(len(names), 'query', 'queries')} need a partition that is not live.",
            "Nothing of them is published until they are back. Their input waits: the journal knows what each epoch read.",
        ]
        return "down", f"down: {_listed(names)}", why, []
    names = sorted({query_of(name) for name in event.back})
    if not names or (job.newest is None and job.started is not None and not job.started.resumed_epoch):
        return None
    since = {name: job.queries[name].down_since_s for name in names if name in job.queries}
    waited = [f"{name} after {seconds_in_words(event.at_s - at_s)}" for name, at_s in since.items() if at_s is not None]
    why = ["All partitions that they need have reached the head of the stream, and their missed epochs are published in order."]
    return "back", f"back: {_listed(names)}", why + ([f"Back: {_listed(waited, COMPARED)}."] if waited else []), []


def _why_moving(event: events.MoveStarted) -> list[str]:
    asked = (
        f"It was asked for by request {event.request}."
        if event.request
        else "The balancer moves load from nodes that have much to nodes that have little."
    )
    return [asked, f"State is moved by {event.how}; queries go on meanwhile."]


def _why_scaled(event: events.ClusterScaled) -> str:
    then = "Nodes are asked for." if event.wanted > event.nodes else "Nodes are drained one by one and given back."
    return f"{event.why[:1].upper()}{event.why[1:]}. {then}"


def _move_table(event: events.MoveStarted, job: "JobState") -> list[tuple[str, ...]]:
    rows = [(name, *(job.label(node) for node in nodes)) for name, nodes in sorted(event.partitions.items())[:COMPARED]]
    return [("partition", "from", "to"), *rows]


def _moved(event: events.MoveEnded) -> str:
    took = f"in {seconds_in_words(event.took_s)}, with a pause of {seconds_in_words(event.pause_s)}"
    return f"{_counted(event.moved, 'partition')} moved {took}{', not all' if event.failure else ''}"


def _why_buffering(event: events.BufferingSwitched) -> str:
    if event.is_on:
        return "A correlated failure: live partitions keep their output for those that are down, so that these need not compute it again."
    return "A checkpoint covers everything: buffers are not needed any more."


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _listed(names: list[str], most: int = NAMED) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def buffers_in_words(is_on: bool, size_bytes: int) -> str:
    """Whether output is buffered, and how much."""
    return f"{'on' if is_on else 'off'}, {bytes_in_words(size_bytes)}" if is_on or size_bytes else "off"
