"""The telemetry of a large job, written down: many queries on many nodes, of which some are lost and come back."""

from collections.abc import Iterator

from resurge.telemetry import events

START_S = 1_700_000_000.0
KEY_GROUPS = 4


def large_job(queries: int = 500, nodes: int = 100, lost: int = 40, epochs: int = 120) -> Iterator[events.Event]:
    """A run with one epoch per second: nodes are lost after a third of it, and queries return by priority."""
    names = [f"query-{number:03d}" for number in range(queries)]
    priorities = {name: 1 + (number * 7) % 10 for number, name in enumerate(names)}
    machines = [f"node-{number}" for number in range(nodes)]
    yield events.JobStarted(START_S, "large", 1, "spark://127.0.0.1:7077", machines, priorities, KEY_GROUPS)
    yield described(names)
    failed = sorted(names[:: max(1, nodes // max(1, lost))], key=lambda name: -priorities[name])
    struck, steps = epochs // 3, max(1, epochs // 2)
    waiting: list[str] = []
    for epoch in range(1, epochs + 1):
        at_s = START_S + epoch
        if epoch == struck:
            yield from _losses(at_s, machines[:lost], failed, priorities)
            waiting = list(failed)
        elif waiting:
            share = max(1, len(failed) // steps)
            returning, waiting = waiting[:share], waiting[share:]
            parts = [f"{name}/{group}" for name in returning for group in range(KEY_GROUPS)]
            yield events.CatchUpFinished(at_s, struck - 3, epoch, 0.4, len(parts), 0, 0, {name: [1.5] for name in returning}, 0.1)
            yield events.QueriesChanged(at_s, epoch, [], parts)
        absent = set(waiting)
        latency = {name: 0.4 + 0.001 * index for index, name in enumerate(names) if name not in absent}
        yield _epoch(at_s, epoch, names, latency)
        if epoch % 5 == 0 or waiting:
            up = machines[lost:] if epoch >= struck else machines
            yield _load(at_s, epoch, names, up, absent)
        if epoch % 10 == 0 and not waiting:
            yield events.CheckpointFinished(at_s, epoch, 0.05)


def described(names: list[str]) -> events.TopologyDescribed:
    """Two sources, a parser each, and a window per query over one or both."""
    operators = {
        "posts": events.OperatorDescription("SourceOperator", [], False),
        "clicks": events.OperatorDescription("SourceOperator", [], False),
        "tags": events.OperatorDescription("Transform", ["posts"], False),
        "pages": events.OperatorDescription("Transform", ["clicks"], False),
    }
    for number, name in enumerate(names):
        inputs = [["tags"], ["pages"], ["tags", "pages"]][number % 3]
        operators[f"window-of-{name}"] = events.OperatorDescription(
            "Window" if len(inputs) == 1 else "IntervalJoin", inputs, True
        )
    return events.TopologyDescribed(START_S, operators, {name: f"window-of-{name}" for name in names})


def _losses(at_s: float, lost: list[str], failed: list[str], priorities: dict[str, int]) -> Iterator[events.Event]:
    for node in lost:
        yield events.NodeLost(at_s, node, len(failed) * KEY_GROUPS // max(1, len(lost)), True)
    yield events.BufferingSwitched(at_s, 1, True)
    parts = [f"{name}/{group}" for name in failed for group in range(KEY_GROUPS)]
    yield events.QueriesChanged(at_s, 1, parts, [])
    half = failed[: len(failed) // 2]
    placement = {f"window-of-{name}/{group}": f"node-{len(lost)}" for name in half for group in range(KEY_GROUPS)}
    needs = {name: events.QueryNeed(KEY_GROUPS, 0.01 * (1 + priorities[name] % 3)) for name in failed}
    chosen = [f"{name}/{group}" for name in half for group in range(KEY_GROUPS)]
    yield events.RecoveryPlanned(at_s, chosen, placement, 0.02, "incremental", {f"node-{len(lost)}": 3.2}, needs)


def _epoch(at_s: float, epoch: int, names: list[str], latency_s: dict[str, float]) -> events.EpochFinished:
    shown = {name: 10 if name in latency_s else 0 for name in names}
    return events.EpochFinished(
        at_s, epoch, 50_000, 0.4, at_s - 0.4, shown, latency_s, 1_000_000, 64_000_000, {}, 0, 1_000, None, {}
    )


def _load(at_s: float, epoch: int, names: list[str], up: list[str], absent: set[str]) -> events.LoadMeasured:
    operators = {}
    for number, name in enumerate(names):
        phases = {"down" if name in absent else "live": KEY_GROUPS}
        operators[f"window-of-{name}"] = events.OperatorLoad(0.001 * (1 + number % 20), 5 if name in absent else 0, phases)
    nodes = {}
    for index, node in enumerate(up):
        held = {f"window-of-{name}": KEY_GROUPS for name in names[index :: len(up)] if name not in absent}
        nodes[node] = events.NodeLoad(0.02 * len(held) * (1 + index % 9), 0.8, held)
    return events.LoadMeasured(at_s, epoch, operators, nodes, 1_000_000 if absent else 0)
