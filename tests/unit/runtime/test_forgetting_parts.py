"""Sinks are told which parts are never published again, so that what they remember does not grow."""

from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.memory_sink import MemorySink
from resurge.operators.aggregates import count
from tests.support.checkpoint_writing import writing
from tests.support.engines import Bench, finish
from tests.support.scripted import scripted

EPOCHS = [[pl.DataFrame({"value": [epoch]})] for epoch in range(9)]


class Remembering(MemorySink):
    """Notes what it was told to forget, and which epoch was published last by then."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int]] = []

    def forget(self, query: str, epoch: int) -> None:
        self.told.append((epoch, max(key[1] for key in self._frames)))


def test_what_no_start_goes_back_to_may_be_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start may fall back to any checkpoint that is kept, so only epochs up to the oldest of them are forgotten."""
    writing(monkeypatch, late=False)
    sink = Remembering()
    job = TopologyBuilder("forgetting", key_groups=2)
    job.source("rows", scripted(EPOCHS)).aggregate("sums", key="value", n=count()).query("all", sink=sink)
    finish(Bench(tmp_path).engine(job.build(), checkpoint_interval=2, checkpoints_kept=2), drain=False)
    assert sink.told[:4] == [(-1, 3), (2, 5), (4, 7), (6, 9)]
