"""What the page is sent: plain values made of a job's state, in columns where there are many rows."""

import re
import statistics
from typing import Any

from resurge.dashboard.layout import drawn
from resurge.dashboard.model import JobState, QueryState
from resurge.dashboard.reasons import Incident
from resurge.dashboard.recoveries import Recovery
from resurge.model.names import query_of

INCIDENTS_SHOWN = 200
STEPS_SHOWN = 12
UNRESPONSIVE_AFTER_S = 15.0
PHASES = ("live", "stalled", "catching up", "down")


def now_view(job: JobState, now_s: float, store: dict[str, Any] | None, *, is_live: bool) -> dict[str, Any]:
    """Where the job stands. `is_live` says that a clock runs; a finished log stands still at its last event."""
    at_s = max(now_s, job.last_s) if is_live and job.stopped is None else job.last_s
    return {
        "version": job.version,
        "at_s": at_s,
        "driver": _driver(job, at_s),
        "figures": _figures(job, at_s),
        "queries": _queries(job, at_s),
        "nodes": _nodes(job),
        "operators": _operators(job),
        "lag": {source: sum(partitions.values()) for source, partitions in job.lag.items()},
        "recovery": recovery_view(job, job.recovery, at_s) if job.recovery is not None else None,
        "recoveries": [_recovery_row(index, known) for index, known in enumerate(job.recoveries)],
        "incidents": [_incident_row(known) for known in reversed(list(job.incidents)[-INCIDENTS_SHOWN:])],
        "store": store,
    }


def history_view(job: JobState) -> dict[str, Any]:
    """Charts and strips over the whole run."""
    if job.series is None:
        return {"from_s": 0.0, "width_s": 1.0, "columns": {}, "strips": {}}
    return {
        "from_s": job.series.from_s,
        "width_s": job.series.width_s,
        "columns": {
            name: [None if value is None else round(value, 4) for value in values]
            for name, values in job.series.columns().items()
        },
        "strips": job.series.strip_texts(),
        "checkpoints_s": [known.at_s for known in job.checkpoints][-100:],
    }


def topology_view(job: JobState) -> dict[str, Any] | None:
    """The drawing of the topology."""
    if job.topology is None:
        return None
    drawing = drawn(job.topology.operators, job.topology.outputs)
    return {
        "width": drawing.width,
        "height": drawing.height,
        "boxes": [
            {"id": b.id, "kind": kind_in_words(b.kind), "operators": b.operators, "queries": b.queries, "x": b.x, "y": b.y}
            for b in drawing.boxes
        ],
        "streams": drawing.streams,
    }


def kind_in_words(kind: str) -> str:
    """What an operator is.

    >>> kind_in_words("SourceOperator"), kind_in_words("IntervalJoin")
    ('source', 'interval join')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.removesuffix("Operator")).lower()


def query_view(job: JobState, name: str, at_s: float) -> dict[str, Any] | None:
    """Everything about one query."""
    query = job.queries.get(name)
    if query is None:
        return None
    outages = [{"from_s": began, "to_s": ended, "took_s": ended - began} for began, ended in query.outages]
    if query.down_since_s is not None:
        outages.append({"from_s": query.down_since_s, "to_s": None, "took_s": at_s - query.down_since_s})  # type: ignore[dict-item]
    operator = job.topology.outputs.get(name) if job.topology is not None else None
    return {
        "name": name,
        "priority": query.priority,
        "status": query.status(job.key_groups),
        "parts_down": len(query.down),
        "parts": job.key_groups,
        "operator": operator,
        "upstream": _upstream(job, operator) if operator is not None else [],
        "latency_s": query.latency_s,
        "usual_latency_s": query.usual_latency_s,
        "latencies": [list(column) for column in zip(*query.latencies, strict=True)],
        "rows": query.rows,
        "outages": outages,
        "decisions": [_incident_row(known) for known in job.incidents if _concerns(known, name)][-20:],
    }


def node_view(job: JobState, name: str) -> dict[str, Any] | None:
    """Everything about one node."""
    node = job.nodes.get(name)
    if node is None:
        return None
    return {
        "name": name,
        "label": job.label(name),
        "executor": name if name in job.names else None,
        "is_up": node.is_up,
        "since_s": node.since_s,
        "cpu_s_per_s": node.load.cpu_s_per_s if node.load else None,
        "capacity": node.load.capacity if node.load else None,
        "holds": sorted(node.load.partitions.items(), key=lambda item: (-item[1], item[0])) if node.load else [],
        "decisions": [_incident_row(known) for known in job.incidents if f"{job.called(name)} " in f"{known.text} "][-20:],
    }


def operator_view(job: JobState, name: str) -> dict[str, Any] | None:
    """Everything about one operator."""
    if job.topology is None or name not in job.topology.operators:
        return None
    known, load = job.topology.operators[name], job.operators.get(name)
    return {
        "name": name,
        "kind": kind_in_words(known.kind),
        "inputs": known.inputs,
        "readers": [other for other, found in job.topology.operators.items() if name in found.inputs],
        "is_stateful": known.is_stateful,
        "cpu_s_per_s": load.cpu_s_per_s if load else None,
        "epochs_behind": load.epochs_behind if load else None,
        "phases": load.phases if load else {},
        "lag": sorted(job.lag.get(name, {}).items(), key=lambda item: (-item[1], _natural(item[0]))),
        "nodes": [
            (node.name, job.label(node.name), node.load.partitions[name])
            for node in job.nodes.values()
            if node.load and name in node.load.partitions
        ],
        "queries": [query for query, operator in job.topology.outputs.items() if operator == name],
    }


def incident_view(job: JobState, number: int) -> dict[str, Any] | None:
    """Why something happened."""
    found = next((known for known in job.incidents if known.id == number), None)
    if found is None:
        return None
    return {**_incident_row(found), "why": list(found.why), "table": [list(row) for row in found.table]}


def recovery_view(job: JobState, recovery: Recovery, at_s: float) -> dict[str, Any]:
    """A recovery step by step, in seconds since it began."""
    began_s = recovery.began_s
    until_s = recovery.ended_s if recovery.ended_s is not None else at_s
    # When a node died is known only to whoever killed it; else the recovery begins when the loss is seen.
    seen_s = recovery.lost[0][0] if recovery.lost and recovery.killed_s is not None else recovery.restarted_s
    phases = {phase: sum(load.phases.get(phase, 0) for load in job.operators.values()) for phase in PHASES}
    return {
        "is_over": recovery.ended_s is not None,
        "cause": recovery.cause,
        "began_s": began_s,
        "took_s": until_s - began_s,
        "detected_after_s": seen_s - began_s if seen_s is not None else None,
        "planned_after_s": recovery.plans[0][0] - began_s if recovery.plans else None,
        "restore_s": recovery.restore_s,
        "catch_up_s": recovery.catch_up_s,
        "lost": [
            {"after_s": moment - began_s, "node": job.label(node), "partitions": count} for moment, node, count in recovery.lost
        ],
        "joined": [{"after_s": moment - began_s, "node": job.label(node)} for moment, node in recovery.joined],
        "plans": [{"after_s": m - began_s, "partitions": parts, "queries": count} for m, parts, count in recovery.plans],
        "steps": [
            {
                "after_s": step.at_s - began_s,
                "first": step.first,
                "last": step.last,
                "took_s": step.took_s,
                "restore_s": step.restore_s,
                "partitions": step.partitions,
                "shadows": step.shadows,
            }
            for step in recovery.steps[-STEPS_SHOWN:]
        ],
        "steps_in_all": len(recovery.steps),
        "failed": len(recovery.failed),
        "back": sorted(
            (
                {"query": query, "after_s": moment - began_s, "priority": _priority(job, query)}
                for query, moment in recovery.back_s.items()
            ),
            key=lambda known: (known["after_s"], -known["priority"]),
        ),
        "waiting": sorted(recovery.failed - set(recovery.back_s), key=lambda query: (-_priority(job, query), query)),
        "phases": phases,
    }


def _priority(job: JobState, query: str) -> int:
    return job.queries[query].priority if query in job.queries else 0


def _driver(job: JobState, at_s: float) -> dict[str, Any]:
    started, stopped = job.started, job.stopped
    quiet_s = at_s - job.last_s
    if started is None:
        status = "no events yet"
    elif stopped is not None:
        status = "failed" if stopped.reason else "stopped"
    else:
        status = "unresponsive" if quiet_s > UNRESPONSIVE_AFTER_S else "running"
    return {
        "status": status,
        "quiet_s": quiet_s,
        "reason": stopped.reason if stopped else "",
        "job": started.job if started else "",
        "master": started.master if started else "",
        "generation": started.generation if started else 0,
        "started_s": started.at_s if started else None,
        "key_groups": job.key_groups,
    }


def _figures(job: JobState, at_s: float) -> dict[str, Any]:
    newest = job.newest
    latencies = [query.latency_s for query in job.queries.values() if query.latency_s is not None and not query.down]
    return {
        "epoch": newest.epoch if newest else (job.started.checkpoint_epoch if job.started else 0),
        "epoch_s": newest.took_s if newest else None,
        "rows": job.rows,
        "rows_per_s": job.rows_per_s,
        "latency_p50_s": statistics.median(latencies) if latencies else None,
        "latency_max_s": max(latencies, default=None),
        "lag_rows": newest.lag_rows if newest else None,
        "row_limit": newest.row_limit if newest else None,
        "state_rows": newest.state_rows if newest else 0,
        "state_bytes": newest.state_bytes if newest else 0,
        "late_rows": job.late_rows,
        "bad_rows": job.bad_rows,
        "checkpoint_epoch": job.checkpoint.epoch if job.checkpoint else None,
        "checkpoint_age_s": at_s - job.checkpoint.at_s if job.checkpoint else None,
        "checkpoint_took_s": job.checkpoint.took_s if job.checkpoint else None,
        "checkpoint_absent": job.checkpoint.absent if job.checkpoint else 0,
        "kept_since": job.checkpoint.kept_since if job.checkpoint else None,
        "local_store": _local_store(job),
        "is_buffering": job.is_buffering,
        "buffered_bytes": job.buffered_bytes,
        "queries": len(job.queries),
        "queries_live": sum(not query.down for query in job.queries.values()),
        "nodes_up": sum(node.is_up for node in job.nodes.values()),
        "nodes_lost": sum(not node.is_up for node in job.nodes.values()),
    }


def _local_store(job: JobState) -> dict[str, Any] | None:
    known = job.local_store
    if known is None:
        return None
    used, overflow = sum(known.used_bytes.values()), sum(known.overflow_bytes.values())
    return {"place": known.place, "limit_bytes": known.limit_bytes, "used_bytes": used, "overflow_bytes": overflow}


def _queries(job: JobState, at_s: float) -> dict[str, list[Any]]:
    known = sorted(job.queries.values(), key=lambda query: (-query.priority, query.name))
    return {
        "name": [query.name for query in known],
        "priority": [query.priority for query in known],
        "status": [query.status(job.key_groups) for query in known],
        "latency_s": [query.latency_s for query in known],
        "relative": [query.relative_latency for query in known],
        "rows": [query.rows for query in known],
        "outages": [len(query.outages) + (query.down_since_s is not None) for query in known],
        "outage_s": [_outage_s(query, at_s) for query in known],
    }


def _outage_s(query: QueryState, at_s: float) -> float:
    lasting = at_s - query.down_since_s if query.down_since_s is not None else 0.0
    return sum(ended - began for began, ended in query.outages) + lasting


def _nodes(job: JobState) -> dict[str, list[Any]]:
    known = sorted(job.nodes.values(), key=lambda node: (not node.is_up, _natural(job.label(node.name))))
    return {
        "name": [node.name for node in known],
        "label": [job.label(node.name) for node in known],
        "is_up": [node.is_up for node in known],
        "unanswered_s": [node.unanswered_s if node.is_up else None for node in known],
        "used": [node.load.cpu_s_per_s if node.load else None for node in known],
        "capacity": [node.load.capacity if node.load else None for node in known],
        "partitions": [sum(node.load.partitions.values()) if node.load else 0 for node in known],
        "operators": [len(node.load.partitions) if node.load else 0 for node in known],
    }


def _natural(name: str) -> tuple[int, str]:
    return len(name), name


def _operators(job: JobState) -> dict[str, list[Any]]:
    return {
        "name": list(job.operators),
        "cpu_s_per_s": [load.cpu_s_per_s for load in job.operators.values()],
        "behind": [load.epochs_behind for load in job.operators.values()],
        **{phase: [load.phases.get(phase, 0) for load in job.operators.values()] for phase in PHASES},
    }


def _incident_row(known: Incident) -> dict[str, Any]:
    return {"id": known.id, "at_s": known.at_s, "kind": known.kind, "text": known.text, "has_why": bool(known.why or known.table)}


def _recovery_row(index: int, known: Recovery) -> dict[str, Any]:
    return {"index": index, "began_s": known.began_s, "cause": known.cause, "ended_s": known.ended_s, "failed": len(known.failed)}


def _concerns(known: Incident, query: str) -> bool:
    words = {word.strip(",;:") for word in known.text.split()}
    return query in words or query_of(query) in words or any(row and row[0] == query for row in known.table)


def _upstream(job: JobState, operator: str) -> list[str]:
    if job.topology is None:
        return []
    found: dict[str, None] = {operator: None}
    waiting = [operator]
    while waiting:
        known = job.topology.operators.get(waiting.pop())
        for name in known.inputs if known is not None else ():
            if name not in found:
                found[name] = None
                waiting.append(name)
    return list(found)
