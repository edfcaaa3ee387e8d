"""The ceiling: the fastest plain program that we know for the throughput workload, without an engine or fault tolerance.

Hashtags stay the integers that Parquet's own dictionary made of them. An epoch is counted once into a matrix of panes and
hashtags; with sums running over the panes, a window is the difference of two rows. State is an array per open window.
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resurge.benchmarks.workload import FILES_PER_EPOCH, WATERMARK_S, Epoch, Workload, window_s

Integers = npt.NDArray[np.int64]


class Panes(NamedTuple):
    """An epoch's hashtags and, for each pane from `first_s` on, how often each had come before it."""

    tags: Any
    before: Integers
    first_s: int
    last_s: int
    pane_s: int


def plain_epochs(workload: Workload, queries: int) -> list[Epoch]:
    """Epochs of the plain program."""
    took, began = [], time.perf_counter()
    for _ in updates(workload, queries):
        took.append(Epoch(workload.posts_per_epoch, time.perf_counter() - began))
        began = time.perf_counter()
    return took


def updates(workload: Workload, queries: int) -> Iterator[list[Any]]:
    """For each epoch, the changed windows of each query as a table of tag, start and n."""
    spans = [window_s(query) for query in range(queries)]
    pane_s = math.gcd(*(length for span in spans for length in span))
    paths = workload.paths()
    numbers: dict[str, int] = {}
    states: list[dict[int, Integers]] = [{} for _ in spans]
    with ThreadPoolExecutor(workload.cores) as pool:
        for epoch in range(workload.epochs):
            files = paths[epoch * FILES_PER_EPOCH : (epoch + 1) * FILES_PER_EPOCH]
            panes = _panes(list(pool.map(_read, files)), pane_s)
            known = np.fromiter((numbers.setdefault(tag, len(numbers)) for tag in panes.tags.to_pylist()), np.int64)
            yield list(pool.map(partial(_windows, panes, known, len(numbers)), spans, states))


def _read(path: Path) -> Any:
    return pq.read_table(path, read_dictionary=["tags.list.element"], use_threads=False)


def _panes(tables: list[Any], pane_s: int) -> Panes:
    table = pa.concat_tables(tables)
    tags, panes = [], []
    for times, lists in zip(table["ts"].chunks, table["tags"].chunks, strict=True):
        tags.append(lists.flatten())
        moments = times.cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() // (1_000_000 * pane_s)
        panes.append(moments[pc.list_parent_indices(lists).to_numpy()])
    unified = pa.chunked_array(tags).unify_dictionaries()
    names = unified.chunk(0).dictionary
    pane = np.concatenate(panes)
    code = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in unified.chunks])
    low, count, width = int(pane.min()), int(np.ptp(pane)) + 1, len(names)
    counted = np.bincount((pane - low) * width + code, minlength=count * width).reshape(count, width)
    before = np.zeros((count + 1, width), dtype=np.int64)
    np.cumsum(counted, axis=0, out=before[1:])
    return Panes(names, before, low * pane_s, (low + count) * pane_s, pane_s)


def _windows(panes: Panes, known: Integers, tags: int, span: tuple[int, int], state: dict[int, Integers]) -> Any:
    """Add an epoch to the windows of one query; `known` has the number of each of the epoch's tags in state."""
    size, slide = span
    watermark = panes.last_s - WATERMARK_S
    starts, hits, counts = [], [], []
    for start in range(((panes.first_s - size) // slide + 1) * slide, panes.last_s, slide):
        low, high = (
            (min(max(edge, panes.first_s), panes.last_s) - panes.first_s) // panes.pane_s for edge in (start, start + size)
        )
        added = panes.before[high] - panes.before[low]
        hit = np.flatnonzero(added)
        count = added[hit]
        if start in state or start + size > watermark:
            held = _grown(state.get(start), tags)
            held[known[hit]] += count
            count, state[start] = held[known[hit]], held
        starts.append(np.full(hit.size, start))
        hits.append(hit)
        counts.append(count)
    for start in [start for start in state if start + size <= watermark]:
        del state[start]
    tag = pa.DictionaryArray.from_arrays(np.concatenate(hits).astype(np.int32), panes.tags)
    return pa.table({"tag": tag, "start": np.concatenate(starts), "n": np.concatenate(counts)})


def _grown(held: Integers | None, tags: int) -> Integers:
    if held is not None and held.size >= tags:
        return held
    grown = np.zeros(2 * tags, dtype=np.int64)
    if held is not None:
        grown[: held.size] = held
    return grown
