"""Credentials in URLs reach nobody: not errors, telemetry, the job's files, nor printed commands."""

import os
from pathlib import Path

import fsspec
import polars as pl
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from resurge.api.builder import TopologyBuilder
from resurge.cli.run import again_command
from resurge.connectors.sinks import ParquetSink
from resurge.errors import ResurgeError, SourceError, StorageError
from resurge.model.topology import Topology
from resurge.operators.aggregates import count
from resurge.redaction import redacted
from resurge.storage.durable import DurableStore
from resurge.storage.stored_job import open_job
from resurge.telemetry.events import Warned
from resurge.telemetry.log import TelemetryLog, read_events
from tests.support.engines import Bench, finish, started
from tests.support.scripted import scripted

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"ftp://me:{SECRET}@host/jobs", "ftp://***@host/jobs"),
        (f"postgresql://me:{SECRET}@host:5432/db is down", "postgresql://***@host:5432/db is down"),
        (f"abfs://c@a.dfs.core.windows.net/j?sv=1&sig={SECRET}&se=2", "abfs://***@a.dfs.core.windows.net/j?sv=1&sig=***&se=2"),
        (f"host=db password={SECRET} user=me", "host=db password=*** user=me"),
        (f"sasl.password={SECRET}", "sasl.password=***"),
        (
            f"https://host/x?X-Amz-Signature={SECRET}&X-Amz-Credential={SECRET}",
            "https://host/x?X-Amz-Signature=***&X-Amz-Credential=***",
        ),
        (f"{{'sasl.username': 'me', 'sasl.password': '{SECRET}'}}", "{'sasl.username': 'me', 'sasl.password': '***'}"),
        ("unexpected token: x", "unexpected token: x"),
        ("s3://bucket/folder@home/x: the secret is safe", "s3://bucket/folder@home/x: the secret is safe"),
        ("operator 'tokens' has 3 rows, signature files(a: Int64)", "operator 'tokens' has 3 rows, signature files(a: Int64)"),
    ],
)
def test_credentials_are_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    """The password of a URL and the values of fields that are called like secrets."""
    assert redacted(text) == shown


def test_every_error_of_ours_hides_credentials() -> None:
    """In the base class, so that nobody has to think of it."""
    kinds = [ResurgeError, *ResurgeError.__subclasses__(), StorageError, SourceError]
    for kind in kinds:
        assert SECRET not in str(kind(f"cannot open ftp://me:{SECRET}@host/jobs"))


class Remote(MemoryFileSystem):
    """A store whose URL has a password, as FTP, SFTP and SMB have."""

    protocol = "remote"
    store: dict[str, object] = {}  # noqa: RUF012 (as the file system above has it)
    pseudo_dirs = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + str(path).removeprefix(f"remote://me:{SECRET}@host").strip("/")


def topology(out: Path) -> Topology:
    job = TopologyBuilder("hidden", key_groups=2)
    job.source("rows", scripted([[pl.DataFrame({"value": [1]})] for _ in range(3)])).query("all", sink=ParquetSink(out))
    return job.build()


def test_nothing_that_a_job_writes_or_says_has_the_password_of_its_url(tmp_path: Path) -> None:
    """Journal, identity, owner file of the sink, telemetry, status and every error."""
    fsspec.register_implementation("remote", Remote, clobber=True)
    url = f"remote://me:{SECRET}@host/jobs/mine"
    bench = Bench(tmp_path / "bench")
    first = bench.engine(topology(tmp_path / "out"), checkpoint_url=url)
    with started(first):
        first.step()
        finish(bench.engine(topology(tmp_path / "out"), checkpoint_url=url))
        with pytest.raises(ResurgeError, match=r"remote://\*\*\*@host/jobs/mine") as superseded:
            first.step()
    assert SECRET not in str(superseded.value)
    with pytest.raises(ResurgeError, match=r"kept at remote://\*\*\*@host/jobs/mine") as refused:
        finish(Bench(tmp_path / "other").engine(topology(tmp_path / "out")))
    assert SECRET not in str(refused.value)
    files = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    files |= {path: DurableStore(url).filesystem.cat_file(path) for path in DurableStore(url).filesystem.find("/jobs")}
    assert len(files) > 5
    assert not [path for path, content in files.items() if SECRET.encode() in content or SECRET in path]
    assert SECRET not in open_job(url).store.shown_url
    assert not [event for event in bench.events if SECRET in repr(event)]


def test_the_command_that_resumes_a_job_is_printed_without_the_password() -> None:
    """It stands in terminals and logs; the user knows what to put there."""
    chosen = {"target": "job.py", "checkpoint": f"ftp://me:{SECRET}@host/jobs"}
    assert again_command(chosen, {"checkpoint": None}) == "resurge run job.py --checkpoint 'ftp://***@host/jobs'"


def test_telemetry_hides_credentials_from_the_log_and_from_listeners(tmp_path: Path) -> None:
    """Whatever text an event has."""
    heard: list[object] = []
    with TelemetryLog(tmp_path / "telemetry.jsonl") as log:
        log.listeners.append(heard.append)
        log.write(Warned(0.0, f'lost "ftp://me:{SECRET}@host/jobs" ("password={SECRET}")'))
    hidden = Warned(0.0, 'lost "ftp://***@host/jobs" ("password=***")')
    assert heard == list(read_events(tmp_path / "telemetry.jsonl")) == [hidden]


def test_logs_and_local_stores_are_for_their_owner_only(tmp_path: Path) -> None:
    """Whatever the user's umask lets through."""
    before = os.umask(0)
    try:
        with TelemetryLog(tmp_path / "telemetry.jsonl"):
            assert (tmp_path / "telemetry.jsonl").stat().st_mode & 0o077 == 0
        job = TopologyBuilder("private", key_groups=1)
        rows = scripted([[pl.DataFrame({"value": [1]})] for _ in range(3)])
        bench = Bench(tmp_path / "bench")
        job.source("rows", rows).aggregate("n", key="value", n=count()).query("n", sink=bench.sink)
        local = tmp_path / "local"
        local.mkdir()
        with started(bench.engine(job.build(), local_root=str(local))) as engine:
            engine.step()
            folders = list(local.iterdir())
            assert folders and all(folder.stat().st_mode & 0o077 == 0 for folder in folders)
    finally:
        os.umask(before)
