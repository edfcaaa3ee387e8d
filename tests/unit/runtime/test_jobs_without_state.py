"""A job without any state: its checkpoints are empty, and bound its journal all the same."""

from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.model.topology import Topology
from tests.support.checkpoint_writing import writing
from tests.support.engines import Bench, finish, started
from tests.support.scripted import scripted

EPOCHS = 40
ROWS = [[pl.DataFrame({"v": [epoch, -epoch]})] for epoch in range(EPOCHS)]


def doubled(bench: Bench) -> Topology:
    job = TopologyBuilder("job", key_groups=3)
    job.source("rows", scripted(ROWS)).map("double", pl.col("v") * 2).query("out", sink=bench.sink)
    return job.build()


def test_a_job_without_state_trims_its_journal_and_goes_on_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a checkpoint with nothing in it nor a restart from one is an error; every row is shown once."""
    writing(monkeypatch, late=False)
    bench = Bench(tmp_path)
    with started(bench.engine(doubled(bench))) as engine:
        for _ in range(EPOCHS // 2):
            engine.step()
        assert engine.recovery.checkpoint >= EPOCHS // 2 - 2
        assert len(list((bench.store / "journal").glob("*.json"))) < 20
    finish(bench.engine(doubled(bench)))
    assert sorted(bench.shown()["out"]["v"]) == sorted(2 * sign * epoch for epoch in range(EPOCHS) for sign in (1, -1))
