"""Where the operators of a topology stand in a drawing: layers from left to right, few crossings, many siblings as one box."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resurge.telemetry.events import OperatorDescription

BOX_WIDTH = 176
BOX_HEIGHT = 44
COLUMN_GAP = 84
ROW_GAP = 10
MOST_IN_LAYER = 20
LEAST_SIBLINGS = 3
SWEEPS = 6


@dataclass(frozen=True)
class Box:
    """One operator, or siblings that are drawn as one because the layer would be too long."""

    id: str
    kind: str
    operators: tuple[str, ...]
    queries: tuple[str, ...]
    x: float
    y: float


@dataclass(frozen=True)
class Drawing:
    """Boxes, the streams between them, and the size of it all."""

    boxes: tuple[Box, ...]
    streams: tuple[tuple[str, str], ...]
    width: float
    height: float


def drawn(operators: Mapping[str, OperatorDescription], outputs: Mapping[str, str]) -> Drawing:
    """The drawing of a topology; the same topology is always drawn alike."""
    members = _boxes(operators, outputs)
    box_of = {name: box for box, names in members.items() for name in names}
    streams = dict.fromkeys(
        (box_of[upstream], box_of[name]) for name, known in operators.items() for upstream in known.inputs if upstream in box_of
    )
    layers = _layers({box: _layer_of(operators)[names[0]] for box, names in members.items()})
    ordered = _with_few_crossings(layers, list(streams))
    queries: dict[str, list[str]] = {}
    for query, operator in outputs.items():
        queries.setdefault(operator, []).append(query)
    tallest = max((len(layer) for layer in ordered), default=0) * (BOX_HEIGHT + ROW_GAP)
    boxes = []
    for column, layer in enumerate(ordered):
        top = (tallest - len(layer) * (BOX_HEIGHT + ROW_GAP)) / 2
        for row, box in enumerate(layer):
            names = members[box]
            read = tuple(query for name in names for query in queries.get(name, ()))
            place = column * (BOX_WIDTH + COLUMN_GAP), top + row * (BOX_HEIGHT + ROW_GAP)
            boxes.append(Box(box, operators[names[0]].kind, tuple(names), read, *place))
    width = max(0, len(ordered) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP)
    return Drawing(tuple(boxes), tuple(streams), width, tallest)


def _layer_of(operators: Mapping[str, OperatorDescription]) -> dict[str, int]:
    """How many operators are above each, at most; operators come upstream first."""
    found: dict[str, int] = {}
    for name, known in operators.items():
        found[name] = 1 + max((found.get(upstream, -1) for upstream in known.inputs), default=-1)
    return found


def _boxes(operators: Mapping[str, OperatorDescription], outputs: Mapping[str, str]) -> dict[str, list[str]]:
    """Operators by box: siblings of a crowded layer (same kind, same inputs) share one."""
    layer_of = _layer_of(operators)
    sizes: dict[int, int] = {}
    for layer in layer_of.values():
        sizes[layer] = sizes.get(layer, 0) + 1
    readers = {upstream for known in operators.values() for upstream in known.inputs}
    siblings: dict[tuple[object, ...], list[str]] = {}
    for name, known in operators.items():
        crowded = sizes[layer_of[name]] > MOST_IN_LAYER
        same = (layer_of[name], known.kind, tuple(known.inputs), name in readers) if crowded else (name,)
        siblings.setdefault(same, []).append(name)
    # Where inputs differ too, a crowded layer is drawn by kind alone.
    crowded_layers = {layer_of[names[0]] for names in siblings.values()}
    found: dict[str, list[str]] = {}
    for layer in sorted(crowded_layers):
        groups = [names for names in siblings.values() if layer_of[names[0]] == layer]
        if len(groups) > MOST_IN_LAYER:
            by_kind: dict[tuple[str, bool], list[str]] = {}
            for names in groups:
                by_kind.setdefault((operators[names[0]].kind, names[0] in readers), []).extend(names)
            groups = list(by_kind.values())
        for names in groups:
            if 1 < len(names) < LEAST_SIBLINGS:
                found |= {name: [name] for name in names}
            else:
                found[names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"] = names
    return found


def _layers(layer_of: Mapping[str, int]) -> list[list[str]]:
    layers: list[list[str]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for box, layer in layer_of.items():
        layers[layer].append(box)
    return layers


def _with_few_crossings(layers: list[list[str]], streams: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Order each layer by the mean place of its neighbours, back and forth."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for upstream, reader in streams:
        above.setdefault(reader, []).append(upstream)
        below.setdefault(upstream, []).append(reader)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        neighbours = above if forward else below
        for layer in layers if forward else reversed(layers):
            places = {box: (index + 0.5) / len(other) for other in layers for index, box in enumerate(other)}

            def mean(box: str, known: Mapping[str, list[str]] = neighbours, at: Mapping[str, float] = places) -> float:
                near = [at[other] for other in known.get(box, ())]
                return sum(near) / len(near) if near else at[box]

            layer.sort(key=mean)
    return layers
