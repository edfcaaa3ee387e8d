"""The recovery-plans study: generated as announced, repeatable, and written completely."""

import csv
import random
from pathlib import Path

import pytest

from resurge.studies.recovery_plans import QUERIES, SETTINGS, Result, failed_topology, sweep
from resurge.studies.recovery_plans_report import CSV_NAME, PLOT_NAME, SUMMARY_NAME, write_study


def test_generated_topologies_keep_their_setting() -> None:
    """18 queries, no partition shared more than the setting allows, capacity for everything."""
    for setting in SETTINGS:
        problem = failed_topology(setting, random.Random(1))
        shares = [sum(name in query.partitions for query in problem.queries.values()) for name in problem.partitions]
        assert len(problem.queries) == QUERIES
        assert 1 <= min(shares) <= max(shares) <= setting.most_sharing
        assert problem.capacity == problem.cost_of(problem.partitions)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [result for some in sweep(3, 1) for result in some]


def test_the_same_seed_gives_the_same_study(results: list[Result]) -> None:
    """Two sweeps with one seed are equal, result by result."""
    again = next(iter(sweep(3, 1)))
    assert again == results[: len(again)]


def test_the_study_is_written_completely(results: list[Result], tmp_path: Path) -> None:
    """The table holds a row for each result; figure and summary are there."""
    write_study(results, tmp_path, "a test")
    with (tmp_path / CSV_NAME).open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(results)
    assert (tmp_path / PLOT_NAME).stat().st_size > 10_000
    assert "Against the paper" in (tmp_path / SUMMARY_NAME).read_text(encoding="utf-8")


def test_nothing_beats_the_optimum_and_everything_comes_back_with_full_resources(results: list[Result]) -> None:
    """Ratios are sound: at most that of dynamic-programming, and 1 at 100 %."""
    best = {(r.setting, r.resource_percentage): r.ratio for r in results if r.algorithm == "dynamic-programming"}
    assert all(r.ratio <= best[r.setting, r.resource_percentage] for r in results)
    assert all(r.ratio == 1 for r in results if r.resource_percentage == 100)
