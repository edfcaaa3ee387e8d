"""The set-union knapsack by dynamic programming: item by item, over the paid elements that still matter."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from resurge.planning.solvers.set_union_knapsack import Flags, Floats, Integers, SetUnionKnapsack

Words = npt.NDArray[np.uint64]


class TooManyStates(Exception):
    """The table would grow beyond the given size."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """Partial choices after some items: paid elements that later items need, weight, value, and where from."""

    masks: Words
    weights: Floats
    values: Floats
    parents: Integers
    took: Flags


def best_choice(problem: SetUnionKnapsack, most_states: int) -> Flags:
    """Choose an optimal set of items; raise TooManyStates if a layer or the whole table gets too large.

    Of two partial choices with the same paid elements (of those that later items need), the one that is neither
    lighter nor more valuable is dropped.
    """
    order = _order(problem)
    last_use = _last_uses(problem, order)
    layers: list[_Layer] = []
    layer = _Layer(
        masks=np.zeros((1, _word_count(problem)), dtype=np.uint64),
        weights=np.zeros(1),
        values=np.zeros(1),
        parents=np.zeros(1, dtype=np.int64),
        took=np.zeros(1, dtype=np.bool_),
    )
    state_count = 0
    for step, item in enumerate(order):
        layer = _pruned(_with_and_without(problem, layer, item, last_use, step))
        layers.append(layer)
        state_count += len(layer.weights)
        if state_count > most_states:
            raise TooManyStates
    return _traced_back(problem, layers, order)


def _order(problem: SetUnionKnapsack) -> list[int]:
    """Items that share elements follow one another, so that few elements matter at a time."""
    return sorted(range(problem.item_count), key=lambda item: sorted(problem.needed_by(item).tolist()))


def _last_uses(problem: SetUnionKnapsack, order: list[int]) -> Integers:
    last_use = np.full(problem.element_count, -1, dtype=np.int64)
    for step, item in enumerate(order):
        last_use[problem.needed_by(item)] = step
    return last_use


def _word_count(problem: SetUnionKnapsack) -> int:
    return max(1, -(-problem.element_count // 64))


def _bit(element: int) -> tuple[int, np.uint64]:
    return element // 64, np.uint64(1 << (element % 64))


def _with_and_without(problem: SetUnionKnapsack, layer: _Layer, item: int, last_use: Integers, step: int) -> _Layer:
    masks, weights = layer.masks.copy(), layer.weights.copy()
    for element in problem.needed_by(item).tolist():
        word, bit = _bit(element)
        weights += problem.weights[element] * ((layer.masks[:, word] & bit) == 0)
        masks[:, word] |= bit
    fits = weights <= problem.limit
    count, taken = len(layer.weights), int(fits.sum())
    both = np.concatenate([layer.masks, masks[fits]])
    for element in problem.needed_by(item).tolist():
        if last_use[element] == step:
            word, bit = _bit(element)
            both[:, word] &= ~bit
    return _Layer(
        masks=both,
        weights=np.concatenate([layer.weights, weights[fits]]),
        values=np.concatenate([layer.values, layer.values[fits] + problem.values[item]]),
        parents=np.concatenate([np.arange(count), np.flatnonzero(fits)]),
        took=np.concatenate([np.zeros(count, dtype=np.bool_), np.ones(taken, dtype=np.bool_)]),
    )


def _pruned(layer: _Layer) -> _Layer:
    """Keep, for equal masks, only choices that are more valuable than every lighter one."""
    keys = [-layer.values, layer.weights, *(layer.masks[:, word] for word in range(layer.masks.shape[1]))]
    order = np.lexsort(keys)
    masks, values = layer.masks[order], layer.values[order]
    is_new_group = np.ones(len(order), dtype=np.bool_)
    is_new_group[1:] = (masks[1:] != masks[:-1]).any(axis=1)
    group = np.cumsum(is_new_group) - 1
    # Lifting each group above the one before makes one running maximum serve all groups.
    ranks = np.unique(values, return_inverse=True)[1].astype(np.int64)
    lifted = ranks + group * (int(ranks.max()) + 1)
    best_before = np.concatenate([[-1], np.maximum.accumulate(lifted)[:-1]])
    kept = order[(lifted > best_before) | is_new_group]
    return _Layer(layer.masks[kept], layer.weights[kept], layer.values[kept], layer.parents[kept], layer.took[kept])


def _traced_back(problem: SetUnionKnapsack, layers: list[_Layer], order: list[int]) -> Flags:
    chosen = np.zeros(problem.item_count, dtype=np.bool_)
    if not layers:
        return chosen
    state = int(layers[-1].values.argmax())
    for layer, item in zip(reversed(layers), reversed(order), strict=True):
        chosen[item] = layer.took[state]
        state = int(layer.parents[state])
    return chosen
