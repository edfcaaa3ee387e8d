"""`resurge run` as users run it: a process of its own on real Spark, interrupted, resumed, looked at from outside."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

JOB = '''
"""An endless PySpark data source and an operator, both defined in the job's own file and in one beside it."""

from datetime import datetime, timedelta

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from words_beside_the_job import word_of

from resurge import ParquetSink, PythonSource, TopologyBuilder, count


class Numbers(InputPartition):
    def __init__(self, first, last):
        self.first, self.last = first, last


class Counting(DataSourceStreamReader):
    def initialOffset(self):
        return {"next": 0}

    def latestOffset(self, start, limit):
        return {"next": start["next"] + 20}

    def partitions(self, start, end):
        middle = (start["next"] + end["next"]) // 2
        return [Numbers(start["next"], middle), Numbers(middle, end["next"])]

    def read(self, partition):
        for number in range(partition.first, partition.last):
            yield number, datetime(2024, 1, 1) + timedelta(seconds=number)


class CountingSource(DataSource):
    @classmethod
    def name(cls):
        return "counting"

    def schema(self):
        return "number BIGINT, at TIMESTAMP_NTZ"

    def streamReader(self, schema):
        return Counting()


def with_word(table):
    return table.with_columns(table["number"].map_elements(word_of, return_dtype=str).alias("word"))


job = TopologyBuilder("counting", key_groups=3)
numbers = job.source("numbers", PythonSource(CountingSource), event_time="at").map("words", with_word)
numbers.query("all", priority=2, sink=ParquetSink(OUT, folder_per_query=True))
numbers.aggregate("totals", key="word", n=count()).query("totals", priority=9, sink=ParquetSink(OUT, folder_per_query=True))
'''
WORDS = 'def word_of(number):\n    return "odd" if number % 2 else "even"\n'


@dataclass(frozen=True)
class Ended:
    """A finished process."""

    code: int
    output: str


@dataclass(frozen=True)
class Story:
    """A job that was run, interrupted and run again."""

    folder: Path
    interrupted: Ended
    resumed: Ended

    @property
    def checkpoint(self) -> str:
        """Where the job is kept."""
        return str(self.folder / "job")


def resurge(*arguments: str) -> list[str]:
    """The command line of a subcommand."""
    return [sys.executable, "-c", "from resurge.cli.main import run; run()", *arguments]


def run_until(pattern: str, command: list[str], folder: Path) -> Ended:
    """Start a command and send SIGTERM to it and all it started, as a service manager does, once a line of its output fits."""
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        lines = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if re.match(pattern, line):
                os.killpg(process.pid, signal.SIGTERM)
                break
        rest, _ = process.communicate(timeout=300)
    return Ended(process.returncode, "".join([*lines, rest]))


def run_to_end(command: list[str], folder: Path) -> Ended:
    """Run a command."""
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
    )
    return Ended(done.returncode, done.stdout)


@pytest.fixture(scope="module")
def story(tmp_path_factory) -> Iterator[Story]:
    """Run, SIGTERM to the process group in the third epoch or later, run three epochs more with a report."""
    folder = tmp_path_factory.mktemp("command-line")
    (folder / "counting.py").write_text(JOB.replace("OUT", repr(str(folder / "out"))))
    (folder / "words_beside_the_job.py").write_text(WORDS)
    run = resurge("run", "counting.py:job", "--master", "local[2]", "--checkpoint", str(folder / "job"), "--interval", "100ms")
    interrupted = run_until(r"epoch 3 \|", run, folder)
    resumed = run_to_end([*run, "--epochs", "3", "--report", "report.html", "--spark-ui"], folder)
    yield Story(folder, interrupted, resumed)


def test_interrupt_ends_in_order_and_says_how_to_resume(story):
    """Exit code 0: the current epoch was finished and a checkpoint made."""
    assert story.interrupted.code == 0, story.interrupted.output
    assert "stopping after this epoch" in story.interrupted.output
    last = re.search(r"stopped after epoch (\d+); resume with: (.*)", story.interrupted.output)
    assert last is not None
    assert last[2] == f"resurge run counting.py:job --master 'local[2]' --checkpoint {story.checkpoint} --interval 100ms"
    assert "Traceback" not in story.interrupted.output


def test_what_spark_said_is_in_a_file_and_its_page_can_be_switched_on(story):
    """The messages point to the file; nothing of it is printed across the view."""
    assert re.search(r"Spark's own page: http://127\.0\.0\.1:\d+", story.resumed.output), story.resumed.output
    assert f"what Spark said: {story.checkpoint}/spark.log" in story.resumed.output
    assert "WARN" in Path(story.checkpoint, "spark.log").read_text()
    assert "WARN" not in story.interrupted.output + story.resumed.output


def test_a_run_without_a_checkpoint_url_leaves_nothing_behind(story):
    """Nothing can be resumed, which is said, so nothing is kept."""
    temporary = story.folder / "temporary"
    temporary.mkdir()
    (story.folder / "passing.py").write_text(JOB.replace("OUT", repr(str(story.folder / "passing"))))
    command = resurge("run", "passing.py:job", "--master", "local[2]", "--interval", "100ms", "--epochs", "1")
    ended = run_to_end(["env", f"TMPDIR={temporary}", *command], story.folder)
    assert ended.code == 0, ended.output
    assert "nothing of the job is kept but its output: give --checkpoint to resume it" in ended.output
    assert [path.name for path in temporary.iterdir() if path.name.startswith("resurge-")] == []


def test_next_run_resumes_where_the_first_ended(story):
    """Nothing is run again after an orderly stop."""
    assert story.resumed.code == 0, story.resumed.output
    stopped = int(re.search(r"stopped after epoch (\d+)", story.interrupted.output)[1])
    assert f"resumed after epoch {stopped} from the checkpoint of epoch {stopped}, generation 2" in story.resumed.output
    assert "run again" not in story.resumed.output
    assert f"done after epoch {stopped + 3};" in story.resumed.output


def test_every_row_of_both_runs_is_shown_once(story):
    """The output of an undisturbed run."""
    shown = pl.read_parquet(story.folder / "out" / "all" / "epoch=*" / "*.parquet", hive_partitioning=False)
    last = int(re.search(r"done after epoch (\d+)", story.resumed.output)[1])
    assert sorted(shown["number"]) == list(range(20 * last))


def test_report_and_telemetry_are_where_they_are_said_to_be(story):
    """Paths that are printed exist."""
    telemetry = re.search(r"telemetry: (.*)", story.resumed.output)[1]
    assert telemetry == f"{story.checkpoint}/telemetry.jsonl"
    assert Path(telemetry).stat().st_size > 0
    assert "report: report.html" in story.resumed.output
    assert "resumed once" in (story.folder / "report.html").read_text()


def test_status_and_state_agree_with_the_run(story):
    """Without Spark, from the durable store alone."""
    last = int(re.search(r"done after epoch (\d+)", story.resumed.output)[1])
    status = json.loads(run_to_end(resurge("status", story.checkpoint, "--verify", "--json"), story.folder).output)
    assert (status["committed_epoch"], status["checkpoint_epoch"], status["generation"]) == (last, last, 2)
    assert status["offsets"] == {"numbers": {"next": 20 * last}}
    assert set(status["checkpoints"].values()) == {None}
    state = run_to_end(resurge("state", story.checkpoint, "totals", "--key", "odd", "--json"), story.folder)
    (table,) = json.loads(state.output)["tables"].values()
    assert [row["count()"] for row in table["data"]] == [10 * last]


def test_topology_that_does_not_fit_is_refused_in_one_line(story):
    """Before Spark is started."""
    path = story.folder / "counting.py"
    path.write_text(path.read_text().replace("key_groups=3", "key_groups=5"))
    refused = run_to_end(
        resurge("run", "counting.py:job", "--master", "local[1]", "--checkpoint", story.checkpoint), story.folder
    )
    assert refused.code == 1
    assert re.fullmatch(r"resurge: the topology asks for 5 key groups, but its checkpoint has 3; .*\n", refused.output)
