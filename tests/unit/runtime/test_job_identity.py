"""A job has an id for life, and what it keeps belongs to it alone."""

from pathlib import Path

import polars as pl
import pytest

from resurge.api.builder import TopologyBuilder
from resurge.connectors.sinks import MemorySink, ParquetSink
from resurge.errors import IncompatibleJobError, SinkError
from resurge.model.topology import Topology
from resurge.storage.durable import DurableStore
from resurge.storage.job_store import read_identity
from tests.support.engines import Bench, finish, started
from tests.support.scripted import scripted

EPOCHS = [[pl.DataFrame({"value": [epoch, epoch + 1]})] for epoch in range(3)]


def topology(sink: ParquetSink | MemorySink) -> Topology:
    job = TopologyBuilder("same", key_groups=2)
    job.source("rows", scripted(EPOCHS)).query("all", sink=sink)
    return job.build()


def shown(folder: Path) -> list[int]:
    files = sorted(folder.glob("epoch=*/*.parquet"))
    return sorted(value for file in files for value in pl.read_parquet(file, hive_partitioning=False)["value"])


def test_a_job_keeps_its_id_and_may_write_to_its_folder_after_every_restart(tmp_path: Path) -> None:
    """One id in job.json, whoever runs the job."""
    bench, ids = Bench(tmp_path), set()
    for _ in range(2):
        with started(bench.engine(topology(ParquetSink(tmp_path / "out")))) as engine:
            engine.step()
        identity = read_identity(DurableStore(str(bench.store)))
        assert identity is not None
        ids.add(identity.id)
    finish(bench.engine(topology(ParquetSink(tmp_path / "out"))))
    assert len(ids) == 1 and len(ids.pop()) == 16
    assert shown(tmp_path / "out") == [0, 1, 1, 2, 2, 3]


def test_a_second_job_in_a_used_folder_is_refused_instead_of_losing_its_rows(tmp_path: Path) -> None:
    """Its epochs have the numbers of the first job's; the error names both jobs; in a folder of its own it goes on."""
    first, second = Bench(tmp_path / "first"), Bench(tmp_path / "second")
    finish(first.engine(topology(ParquetSink(tmp_path / "out"))))
    with pytest.raises(SinkError, match=r"first/job.*second/job.*give the sink another path"):
        finish(second.engine(topology(ParquetSink(tmp_path / "out"))))
    finish(second.engine(topology(ParquetSink(tmp_path / "other"))))
    assert shown(tmp_path / "out") == shown(tmp_path / "other") == [0, 1, 1, 2, 2, 3]


def test_a_second_job_with_the_sink_of_another_is_refused(tmp_path: Path) -> None:
    """A sink in memory remembers what it was given too."""
    sink = MemorySink()
    finish(Bench(tmp_path / "first").engine(topology(sink)))
    with pytest.raises(SinkError, match=r"this MemorySink belongs to job .*make a new MemorySink"):
        finish(Bench(tmp_path / "second").engine(topology(sink)))


def test_two_jobs_never_share_a_local_store(tmp_path: Path) -> None:
    """A driver that starts removes the local files of its own earlier drivers only."""
    first, second = Bench(tmp_path / "first"), Bench(tmp_path / "second")
    local = str(tmp_path / "local")
    with started(first.engine(topology(MemorySink()), local_root=local)) as one:
        one.step()
        with started(second.engine(topology(MemorySink()), local_root=local)) as other:
            other.step()
            assert one.job.split("-")[0] != other.job.split("-")[0]
            one.step()


def test_a_job_kept_in_an_earlier_layout_is_refused(tmp_path: Path) -> None:
    """Its state is ordered otherwise: the error names both layouts and says what to do."""
    bench = Bench(tmp_path)
    bench.store.mkdir()
    (bench.store / "job.json").write_text('{"topology": "counts", "key_groups": 8}')
    with pytest.raises(IncompatibleJobError, match=r"layout 1.*layout 2.*start a new job"):
        finish(bench.engine(topology(MemorySink())))
