"""A file that cannot be read stops the job, and there are ways on: replace it, remove it, route it, skip it. Nothing is lost silently."""

from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from resurge.api.builder import TopologyBuilder
from resurge.cli.main import app, register
from resurge.connectors.files import files
from resurge.errors import BadFileError, SourceError
from resurge.model.topology import Topology
from tests.support.engines import Bench, finish, started

SCHEMA = {"id": pl.Int64}


def job_of(bench: Bench, folder: Path, suffix: str, *, bad_rows: str = "fail") -> Topology:
    """All ids, and the bad rows if they are routed."""
    job = TopologyBuilder("job", key_groups=2)
    source = job.source("in", files(folder / f"*{suffix}", schema=SCHEMA, bad_rows=bad_rows, max_rows_per_epoch=4))
    source.query("ids", sink=bench.sink)
    if bad_rows == "route":
        source.bad_rows("bad").query("rejected", sink=bench.sink)
    return job.build()


def write(path: Path, ids: range) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pl.DataFrame({"id": ids}, schema=SCHEMA)
    {".parquet": frame.write_parquet, ".csv": frame.write_csv}[path.suffix](path)


def write_bad(path: Path) -> None:
    """Without the expected column, or with text where an integer should be."""
    if path.suffix == ".csv":
        path.write_text("other\n1\n2\n")
    else:
        pl.DataFrame({"id": ["one", "two"]}).write_parquet(path)


@pytest.fixture(params=[".csv", ".parquet"])
def suffix(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def stopped(tmp_path: Path, suffix: str) -> tuple[Bench, Path]:
    """A job that has committed two epochs and was stopped by a bad file in the third."""
    folder, bench = tmp_path / "in", Bench(tmp_path / "bench")
    write(folder / f"a{suffix}", range(8))
    with started(bench.engine(job_of(bench, folder, suffix))) as engine:
        engine.step()
        engine.step()
        write_bad(folder / f"b{suffix}")
        with pytest.raises(
            BadFileError, match=rf"b{suffix} .*replace it.*move it away.*bad_rows='route'.*resurge skip URL SOURCE"
        ):
            engine.step()
    with pytest.raises(BadFileError):
        finish(bench.engine(job_of(bench, folder, suffix)))
    return bench, folder


def ids(bench: Bench) -> list[int]:
    return bench.sink.table("ids")["id"].sort().to_list()


def test_a_corrected_file_is_accepted(stopped: tuple[Bench, Path], suffix: str) -> None:
    """Nothing of the epoch was committed, so it is planned anew."""
    bench, folder = stopped
    write(folder / f"b{suffix}", range(8, 30))
    finish(bench.engine(job_of(bench, folder, suffix)))
    assert ids(bench) == list(range(30))


def test_a_file_that_was_moved_away_is_not_missed(stopped: tuple[Bench, Path], suffix: str) -> None:
    """And one of the same name that comes later is read."""
    bench, folder = stopped
    (folder / f"b{suffix}").unlink()
    finish(bench.engine(job_of(bench, folder, suffix)))
    assert ids(bench) == list(range(8))
    write(folder / f"b{suffix}", range(8, 10))
    finish(bench.engine(job_of(bench, folder, suffix)))
    assert ids(bench) == list(range(10))


def test_a_whole_file_can_be_routed(stopped: tuple[Bench, Path], suffix: str) -> None:
    """It is one bad row that names the file and what is wrong; its neighbours are read."""
    bench, folder = stopped
    write(folder / f"c{suffix}", range(8, 10))
    fresh = Bench(bench.folder / "fresh")
    finish(fresh.engine(job_of(fresh, folder, suffix, bad_rows="route")))
    assert ids(fresh) == list(range(10))
    [(location, _, error)] = fresh.sink.table("rejected").rows()
    assert location == str(folder / f"b{suffix}")
    assert "columns other" in error or "cannot be read as id: Int64" in error


def test_a_torn_parquet_file_can_be_routed(tmp_path: Path) -> None:
    """Its footer cannot be read, so it is not known how many rows it has."""
    folder, bench = tmp_path / "in", Bench(tmp_path / "bench")
    write(folder / "a.parquet", range(3))
    content = (folder / "a.parquet").read_bytes()
    (folder / "b.parquet").write_bytes(content[:-20])
    write(folder / "c.parquet", range(3, 6))
    finish(bench.engine(job_of(bench, folder, ".parquet", bad_rows="route")))
    assert ids(bench) == list(range(6))
    assert bench.sink.table("rejected")["location"].to_list() == [str(folder / "b.parquet")]


def skip(*arguments: object) -> str:
    register()
    result = CliRunner().invoke(app, ["skip", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_file_can_be_skipped_by_name_and_status_shows_it(stopped: tuple[Bench, Path], suffix: str) -> None:
    """The choice is recorded in the store, once."""
    bench, folder = stopped
    bad = folder / f"b{suffix}"
    assert "no row of it is read" in skip(bench.store, "in", bad)
    assert "was skipped before" in skip(bench.store, "in", bad)
    write(folder / f"c{suffix}", range(8, 10))
    finish(bench.engine(job_of(bench, folder, suffix)))
    assert ids(bench) == list(range(10))
    shown = CliRunner().invoke(app, ["status", str(bench.store)]).output
    assert "skipped of in" in shown.replace("\n", "") and f"b{suffix}" in shown


def test_only_a_file_of_a_file_source_can_be_skipped(stopped: tuple[Bench, Path], suffix: str) -> None:
    """A mistyped name is refused rather than recorded."""
    bench, folder = stopped
    with pytest.raises(SourceError, match=r"'out' is not a file source.*expected one of: in"):
        skip(bench.store, "out", folder / f"b{suffix}")
    with pytest.raises(SourceError, match="is not there"):
        skip(bench.store, "in", folder / "nowhere.csv")
    assert not (bench.store / "skips").exists()


def test_the_rest_of_a_file_that_changed_can_be_skipped(tmp_path: Path, suffix: str) -> None:
    """Four of its rows were committed; it cannot be read as it is now, nor be replaced."""
    folder, bench = tmp_path / "in", Bench(tmp_path / "bench")
    write(folder / f"a{suffix}", range(8))
    with started(bench.engine(job_of(bench, folder, suffix))) as engine:
        engine.step()
        engine.checkpoint()
    write(folder / f"a{suffix}", range(100, 150))
    with pytest.raises(SourceError, match=r"grew.*put the old file back.*resurge skip"):
        finish(bench.engine(job_of(bench, folder, suffix)))
    assert "its first 4 rows were read" in skip(bench.store, "in", folder / f"a{suffix}")
    write(folder / f"b{suffix}", range(8, 10))
    finish(bench.engine(job_of(bench, folder, suffix)))
    assert ids(bench) == [0, 1, 2, 3, 8, 9]


def test_outcomes_of_an_epoch_that_is_planned_anew_are_not_used(tmp_path: Path) -> None:
    """An operator that is not deterministic logged what it made of the old plan; the new plan has other rows."""
    folder, bench, fails = tmp_path / "in", Bench(tmp_path / "bench"), tmp_path / "fails"
    write(folder / "a.csv", range(4))
    fails.touch()

    def fail_after_outcome(frame: pl.DataFrame) -> pl.DataFrame:
        if fails.exists() and frame.height:
            raise ValueError("not now")
        return frame

    def job() -> Topology:
        made = TopologyBuilder("job", key_groups=2)
        source = made.source("in", files(folder / "*.csv", schema=SCHEMA))
        arbitrary = source.map("arbitrary", lambda frame: frame, deterministic=False)
        arbitrary.map("failing", fail_after_outcome).query("ids", sink=bench.sink)
        return made.build()

    with pytest.raises(Exception, match="not now"):
        finish(bench.engine(job()))
    assert list((bench.store / "outcomes").iterdir()), "the outcome was logged before the failure"
    fails.unlink()
    write(folder / "a.csv", range(10, 16))
    finish(bench.engine(job()))
    assert ids(bench) == list(range(10, 16))
