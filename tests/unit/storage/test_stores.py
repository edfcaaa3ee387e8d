"""Which stores can keep a job: those that create a file only once. Others are refused before anything is kept there."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import polars as pl
import pyarrow.fs
import pytest
import s3fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.memory import MemoryFileSystem

from resurge.api.builder import TopologyBuilder
from resurge.errors import StaleGenerationError, StorageError
from resurge.model.topology import Topology
from resurge.operators.aggregates import sum_
from resurge.storage.durable import DurableStore
from resurge.storage.exclusive_create import refuse_unsafe
from resurge.storage.journal import EpochPlanned, Journal
from tests.support.engines import Bench, asked, assert_same_output, finish, started
from tests.support.s3_server import BUCKET, s3_server, without_conditions
from tests.support.scripted import scripted

ROWS = [[pl.DataFrame({"who": ["a", "b"], "amount": [epoch, 2 * epoch]})] for epoch in range(5)]
fresh = itertools.count()


def topology(bench: Bench) -> Topology:
    job = TopologyBuilder("stored", key_groups=2)
    totals = job.source("rows", scripted(ROWS)).aggregate("totals", key="who", total=sum_("amount"))
    return asked(job, bench.sink, {"totals": totals})


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def s3_url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own in a bucket of the server."""
    use_server(endpoint, monkeypatch)
    return f"s3://{BUCKET}/{next(fresh)}/job"


def use_server(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    s3fs.S3FileSystem.clear_instance_cache()
    files = fsspec.filesystem("s3")
    if not files.exists(BUCKET):
        files.mkdir(BUCKET)


@pytest.fixture(params=["s3", "memory", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of its own in each kind of store."""
    if request.param == "s3":
        return str(request.getfixturevalue("s3_url"))
    return f"memory://jobs-{next(fresh)}/job" if request.param == "memory" else str(tmp_path / "store")


def write(store: DurableStore, pieces: list[bytes], *, fails: bool = False) -> None:
    with store.creating("checkpoints/segment") as add:
        for piece in pieces:
            add(memoryview(piece))
        if fails:
            raise RuntimeError("the process that writes it ends")


def test_a_file_that_is_written_in_pieces_is_there_once_it_is_whole(url: str) -> None:
    """Half of it is never seen; written again it may be as it is, and nothing else."""
    store = DurableStore(url)
    with pytest.raises(RuntimeError):
        write(store, [b"ab"], fails=True)
    assert not store.exists("checkpoints/segment")
    assert store.names("checkpoints") == []
    write(store, [b"ab", b"", b"cd"])
    write(store, [b"a", b"bcd"])
    with pytest.raises(StorageError, match="it is there with other content"):
        write(store, [b"abce"])
    assert store.read("checkpoints/segment") == b"abcd"
    assert store.names("checkpoints") == ["checkpoints/segment"]


def test_a_job_is_kept_and_resumed_in_every_kind_of_store(url: str, tmp_path: Path) -> None:
    """The probe finds the store fit and leaves nothing; killed after two epochs, the job goes on."""
    bench, undisturbed = Bench(tmp_path / "bench"), Bench(tmp_path / "undisturbed")
    finish(undisturbed.engine(topology(undisturbed)))
    with started(bench.engine(topology(bench), checkpoint_url=url)) as engine:
        for _ in range(3):
            engine.step()
    finish(bench.engine(topology(bench), checkpoint_url=url))
    assert_same_output(bench.shown(), undisturbed.shown())
    assert DurableStore(url).names("") == ["/job.json"]


def test_two_drivers_never_own_one_job_in_any_kind_of_store(url: str) -> None:
    """Of drivers that start at the same time each gets a generation of its own, and only the newest may write."""
    journals = [Journal(DurableStore(url)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        generations = list(pool.map(Journal.take_over, journals))
    assert sorted(generations) == [1, 2, 3, 4]
    for journal, generation in zip(journals, generations, strict=True):
        if generation != 4:
            with pytest.raises(StaleGenerationError):
                journal.append(EpochPlanned(1, {}, {}, 0.0))
    journals[generations.index(4)].append(EpochPlanned(1, {}, {}, 0.0))


def test_a_server_that_ignores_conditional_writes_is_refused(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers every write with success: two drivers would both own the job."""
    with without_conditions(endpoint) as ignoring:
        use_server(ignoring, monkeypatch)
        bench = Bench(tmp_path)
        url = f"s3://{BUCKET}/{next(fresh)}/job"
        with pytest.raises(
            StorageError, match=r"cannot keep a job: a file that is there can be created again.*another checkpoint"
        ):
            finish(bench.engine(topology(bench), checkpoint_url=url))
        assert not DurableStore(url).exists("job.json")


class ArrowFiles(ArrowFSWrapper):
    """As `hdfs://` is opened: through Arrow, which can only overwrite."""

    protocol = "arrowfiles"

    def __init__(self, **options: object) -> None:
        super().__init__(pyarrow.fs.LocalFileSystem(), **options)


class LookingFirst(MemoryFileSystem):
    """Looks whether a file is there and then writes it, as clients of stores without conditional writes do."""

    protocol = "lookingfirst"
    cachable = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: object) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        import time

        time.sleep(0.05)  # the way to the server
        super().pipe_file(path, value)


def test_a_store_that_can_only_overwrite_is_refused(tmp_path: Path) -> None:
    """HDFS through Arrow: no look before the write, which would not be atomic."""
    fsspec.register_implementation("arrowfiles", ArrowFiles, clobber=True)
    with pytest.raises(StorageError, match=r"its file system \(ArrowFiles\) cannot create a file only if it is not there"):
        refuse_unsafe(DurableStore(f"arrowfiles://{tmp_path}/job"))


def test_a_store_that_looks_before_it_writes_is_refused() -> None:
    """One writer after another is fine there; several at once are not."""
    fsspec.register_implementation("lookingfirst", LookingFirst, clobber=True)
    with pytest.raises(StorageError, match=r"of 4 writers of one file at the same time, [234] are told that they created it"):
        refuse_unsafe(DurableStore(f"lookingfirst://{next(fresh)}/job"))


def test_a_write_whose_answer_was_lost_is_not_taken_for_another_drivers(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client repeats the request and is told that the file is there; its content says that it is our own."""
    store = DurableStore(s3_url)
    journal = Journal(store)
    journal.take_over()
    once = store.filesystem.pipe_file

    def repeated(*arguments: object, **options: object) -> None:
        once(*arguments, **options)
        once(*arguments, **options)

    monkeypatch.setattr(store.filesystem, "pipe_file", repeated)
    journal.append(EpochPlanned(1, {}, {}, 0.0))
    other = Journal(store)
    other.read()
    assert other.take_over() == 2
    with pytest.raises(StaleGenerationError):
        journal.append(EpochPlanned(2, {}, {}, 0.0))


def torn(journal: Path, number: int) -> None:
    path = journal / f"{number:012d}.json"
    path.write_bytes(path.read_bytes()[:-3])


class Died(BaseException):
    """The driver ends here."""


def dying(parts: object) -> None:
    """Stands in for publishing."""
    raise Died


def test_a_torn_last_record_is_declared_void_and_the_job_goes_on(tmp_path: Path) -> None:
    """Its driver died while writing it, so nothing was published; this and every later start go on, with the same output."""
    undisturbed = Bench(tmp_path / "undisturbed")
    finish(undisturbed.engine(topology(undisturbed)))
    last = 0
    for steps in range(1, 5):
        bench = Bench(tmp_path / str(steps))
        with started(bench.engine(topology(bench))) as engine:
            for _ in range(steps - 1):
                engine.step()
            engine.outputs.show = dying
            with pytest.raises(Died):
                engine.step()
            last = engine.journal.next_number - 1
        torn(bench.store / "journal", last)
        for _ in range(2):
            with started(bench.engine(topology(bench))) as engine:
                engine.step()
        finish(bench.engine(topology(bench)))
        assert_same_output(bench.shown(), undisturbed.shown(), f"torn after {steps} epochs")


def test_a_torn_last_record_after_which_all_others_were_trimmed_is_named(tmp_path: Path) -> None:
    """The only checkpoint's record: without it the job would silently begin anew."""
    bench = Bench(tmp_path)
    with started(bench.engine(topology(bench), checkpoint_interval=1, checkpoints_kept=1)) as engine:
        for _ in range(2):
            engine.step()
        engine.checkpoint()
        last = engine.journal.next_number - 1
    torn(bench.store / "journal", last)
    with pytest.raises(StorageError, match=rf"journal/{last:012d}.json does not fit its checksum"):
        finish(bench.engine(topology(bench)))


def test_a_torn_record_that_was_built_upon_is_named(tmp_path: Path) -> None:
    """Records after it rest on it, so the job cannot go on."""
    bench = Bench(tmp_path)
    with started(bench.engine(topology(bench), checkpoint_interval=0)) as engine:
        for _ in range(2):
            engine.step()
    torn(bench.store / "journal", 2)
    with pytest.raises(StorageError, match=r"journal/000000000002.json does not fit its checksum"):
        finish(bench.engine(topology(bench)))


def test_files_are_removed_in_the_background_in_their_order(tmp_path):
    """After `flush` they are gone; one that cannot be removed is told of, and the others go all the same."""
    store = DurableStore(str(tmp_path))
    for name in ("a/1", "a/2", "a/3"):
        store.create(name, b"")
    (tmp_path / "a" / "folder").mkdir()
    removed = []
    remove = store.filesystem.rm_file
    store.filesystem.rm_file = lambda path: (removed.append(path.rsplit("/", 1)[-1]), remove(path))
    try:
        for name in ("a/1", "a/folder", "a/2", "a/3"):
            store.remove_later(name)
        with pytest.raises(StorageError, match="cannot delete"):
            store.flush()
        store.flush()
    finally:
        store.filesystem.rm_file = remove
    assert removed == ["1", "folder", "2", "3"]
    assert store.names("a") == []
