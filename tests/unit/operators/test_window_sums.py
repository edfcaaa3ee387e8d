"""Windows of whole numbers are the same whichever way they are summed up."""

import random

import numpy as np
import polars as pl
import pytest

from resurge.operators import window_sums
from resurge.operators.aggregates import count, sum_
from resurge.operators.coding import coded
from resurge.operators.window_sums import Panes, windowed

AGGREGATES = (("rows", count()), ("total", sum_("n")))


def panes_of(rng: random.Random, rows: int, far: int) -> Panes:
    frame = pl.DataFrame(
        {
            "who": [rng.choice("abcdefg") for _ in range(rows)],
            "count()": [rng.randrange(1, 4) for _ in range(rows)],
            "sum(n)": [rng.randrange(-5, 5) for _ in range(rows)],
        }
    )
    keys = coded(frame, ("who",))
    times = np.array([rng.randrange(far) * rng.choice((1, 10**12)) for _ in range(rows)], dtype=np.int64)
    return Panes(frame, times, keys.codes, keys)


def expected(panes: Panes, size: int, slide: int, open_from: int | None) -> dict[tuple[int, int], tuple[int, int]]:
    """Row by row and window by window."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    rows = zip(panes.codes.tolist(), panes.pane_us.tolist(), *panes.parts.select("count()", "sum(n)"), strict=True)
    for code, time, number, total in rows:
        window = time // slide
        while window * slide + size > time:
            if open_from is None or window * slide >= open_from:
                before = found.get((code, window), (0, 0))
                found[code, window] = before[0] + number, before[1] + total
            window -= 1
    return found


@pytest.mark.parametrize("cells_per_row", [0, 10**9], ids=["in order", "as differences"])
@pytest.mark.parametrize("seed", range(20))
def test_windows_of_whole_numbers(seed: int, cells_per_row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By key and then by window, each once, with the sums that adding row by row gives."""
    rng = random.Random(seed)
    monkeypatch.setattr(window_sums, "MOST_CELLS_PER_ROW", cells_per_row)
    panes = panes_of(rng, rng.randrange(1, 40), rng.choice((3, 30)))
    # Several windows over one batch: large ones divide it alike, and share what they compute.
    for _ in range(6):
        slide = rng.randrange(1, 7) * rng.choice((1, 50))
        size, open_from = slide * rng.randrange(1, 4) + rng.randrange(slide), rng.choice((None, 5))
        made = windowed(panes, size, slide, open_from, AGGREGATES)
        codes = np.searchsorted(panes.keys.hashes, made.hashes)
        cells = list(zip(codes.tolist(), made.windows.tolist(), strict=True))
        assert cells == sorted(set(cells))
        assert pl.DataFrame(made.keys).equals(panes.keys.keys[codes])
        sums = pl.DataFrame(made.parts).select("count()", "sum(n)").rows()
        assert dict(zip(cells, sums, strict=True)) == expected(panes, size, slide, open_from)


def test_windows_that_divide_a_batch_alike_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size; also if others, which divide it otherwise, come in between."""
    monkeypatch.setattr(window_sums, "MOST_CELLS_PER_ROW", 0)
    frame = panes_of(random.Random(1), 40, 3)
    panes = Panes(frame.parts, np.arange(40), frame.codes, frame.keys)
    small, large = [(7, 7), (5, 2), (9, 3)], [(1000, 500), (3000, 1500), (90_000, 45_000)]
    firsts = [windowed(panes, *spans, None, AGGREGATES) for spans in (large[0], *small, large[1], *small, large[2])]
    assert all(found.hashes is firsts[0].hashes for found in (firsts[4], firsts[8]))
    assert len(panes._shared) <= window_sums.MOST_PATTERNS


@pytest.mark.parametrize("times", [[0], [7, 7_000_007, 21_000_007], [0, 1, 10**15], list(range(-3, 60, 9))])
def test_panes_are_numbered_in_their_order(times: list[int]) -> None:
    """Few panes are found in a table, others by search; either way each row has the number of its pane."""
    rng = random.Random(3)
    frame = panes_of(rng, 200, 3)
    panes = Panes(frame.parts, np.array(times + rng.choices(times, k=200 - len(times))), frame.codes, frame.keys)
    assert panes.numbers.tolist() == [times.index(time) for time in panes.pane_us.tolist()]
