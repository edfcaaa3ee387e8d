"""The handler of the sensor example finds every silence, however its readings are cut into epochs and splits."""

import importlib.util
import random
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.operators.keyed_state import value_of
from tests.support.engines import Bench, finish
from tests.support.scripted import scripted

EXAMPLE = Path(__file__).parents[3] / "examples" / "sensor_alerts.py"
START = datetime(2024, 1, 1)
DELAY_S = 20


def watch() -> type:
    """The example's handler."""
    spec = importlib.util.spec_from_file_location("sensor_alerts", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handler: type = module.Watch
    return handler


def readings(out_of_order: bool) -> pl.DataFrame:
    """Readings of some sensors, each of which falls silent now and then."""
    chance = random.Random(11)
    rows = []
    for sensor in range(8):
        second = 0.0
        for _ in range(60):
            second += chance.choice([1, 5, 29, 31, 90])
            arrives = second + (chance.uniform(0, DELAY_S) if out_of_order else 0)
            rows.append((arrives, START + timedelta(seconds=second), f"s{sensor}", chance.uniform(20, 90)))
    schema = {"arrives": pl.Float64, "time": pl.Datetime("us"), "sensor": pl.String, "celsius": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("arrives").drop("arrives")


def alerts(rows: pl.DataFrame, per_epoch: int, folder: Path) -> pl.DataFrame:
    """The alerts when so many rows make an epoch, in two splits."""
    bench = Bench(folder)
    pieces = [rows.slice(start, per_epoch) for start in range(0, rows.height, per_epoch)]
    epochs = [[piece.head(piece.height // 2), piece.slice(piece.height // 2)] for piece in pieces]
    job = TopologyBuilder("sensors", key_groups=3)
    job.source("readings", scripted(epochs), event_time="time", watermark=f"{DELAY_S}s").process(
        "watch",
        watch(),
        key="sensor",
        schema={"sensor": pl.String, "time": pl.Datetime("us"), "alert": pl.String},
        state={"hot": value_of(pl.Int64), "last_seen": value_of(pl.Datetime("us"))},
    ).query("alerts", sink=bench.sink)
    finish(bench.engine(job.build()))
    return bench.shown()["alerts"].drop("epoch").sort(pl.all())


@pytest.mark.parametrize("out_of_order", [False, True])
def test_every_silence_is_found_whatever_the_cuts(out_of_order: bool, tmp_path: Path) -> None:
    """Deleting and setting a timer again with each reading is right."""
    rows = readings(out_of_order)
    ordered = rows.sort("sensor", "time", maintain_order=True)
    gap = pl.col("time").diff(-1).over("sensor")
    silent = ordered.filter((-gap >= timedelta(seconds=30)) | gap.is_null()).height
    found = [alerts(rows, per_epoch, tmp_path / str(per_epoch)) for per_epoch in (rows.height, 100, 17)]
    assert found[0].filter(pl.col("alert").str.starts_with("silent")).height == silent
    assert found[0].filter(pl.col("alert").str.starts_with("hot")).height > 0
    assert found[1].equals(found[0])
    assert found[2].equals(found[0])
