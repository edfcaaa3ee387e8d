"""A small job with every kind of operator, run as a process of its own so that it can be killed.

python -m tests.support.crash_job FOLDER inline|MASTER
"""

import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from resurge.api.builder import TopologyBuilder
from resurge.connectors.files import files
from resurge.connectors.sinks import ParquetSink
from resurge.model.topology import Topology
from resurge.operators.aggregates import count, max_, sum_
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Runner
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner

EPOCHS = 8
ROWS_PER_FILE = 60
START = datetime(2024, 1, 1)


def write_input(folder: Path, seed: int = 1, epochs: int = EPOCHS) -> None:
    """Two streams of files; some rows come late."""
    rng = random.Random(seed)
    for stream in ("clicks", "views"):
        (folder / stream).mkdir(parents=True, exist_ok=True)
        for file in range(epochs):
            rows = [
                (
                    START + timedelta(seconds=file * 4 + rng.choice((-12, 0, 0, 0)) + rng.uniform(-3, 4)),
                    rng.choice("abcdefgh"),
                    rng.randrange(100),
                )
                for _ in range(ROWS_PER_FILE)
            ]
            frame = pl.DataFrame(rows, schema={"at": pl.Datetime("us"), "who": pl.String, "amount": pl.Int64}, orient="row")
            frame.write_parquet(folder / stream / f"{file:04d}.parquet")


def topology(folder: Path, key_groups: int = 3) -> Topology:
    """Windows in both modes, a session, a join, a running aggregate, a ranking, a side output."""
    job = TopologyBuilder("crashes", key_groups=key_groups)
    clicks = job.source(
        "clicks", files(str(folder / "clicks" / "*.parquet"), max_files_per_epoch=1), event_time="at", watermark="1s"
    )
    views = job.source(
        "views", files(str(folder / "views" / "*.parquet"), max_files_per_epoch=1), event_time="at", watermark="1s"
    )
    window = clicks.window("sliding", "6s", "3s", key="who", n=count(), total=sum_("amount"))
    streams = {
        "sliding": window,
        "late": window.late_rows("late"),
        "tumbling": clicks.window("tumbling", "4s", key="who", emit="final", n=count()),
        "sessions": views.session("sessions", "2s", key="who", emit="final", n=count()),
        "joined": clicks.join("joined", views, on="who", within="1s"),
        "totals": job.union("both", clicks, views).aggregate("totals", key="who", n=count(), most=max_("amount")),
        "ranking": window.top_k("ranking", 2, by="n", per="window_end", identity="who", expire="window_end"),
        "maintained": job.maintain("maintained", window, key="who", identity="window_start", retention="10s"),
    }
    for priority, (name, stream) in enumerate(streams.items(), 1):
        stream.query(name, priority=priority, sink=ParquetSink(str(folder / "out"), folder_per_query=True))
    return job.build()


def shown(folder: Path) -> dict[str, pl.DataFrame]:
    """Every query's committed rows with their epoch, sorted."""
    found = {}
    for query in sorted(path.name for path in (folder / "out").iterdir()):
        pieces = []
        for path in sorted((folder / "out" / query).glob("epoch=*/*.parquet")):
            epoch = int(path.parent.name.removeprefix("epoch="))
            pieces.append(pl.read_parquet(path, hive_partitioning=False).with_columns(pl.lit(epoch).alias("epoch")))
        found[query] = pl.concat(pieces).sort(pl.all()) if pieces else pl.DataFrame()
    return found


def run(folder: Path, runner: Runner, checkpoint_interval: int = 3, strategy: str = "incremental") -> None:
    """Run to the end of the input and close all windows; a run that was drained before has nothing left to do."""
    options = RunOptions(
        str(folder / "job"),
        interval_s=0,
        checkpoint_interval=checkpoint_interval,
        local_root=str(folder),
        strategy=strategy,
        input_log=folder / "telemetry.inputs",
    )
    with TelemetryLog(folder / "telemetry.jsonl") as telemetry:
        engine = Engine(topology(folder), runner, options, telemetry)
        run_until_done(engine, until_idle=True, drain=True)


def main(arguments: list[str]) -> None:
    """Run in this process."""
    folder, master = Path(arguments[0]), arguments[1]
    if master == "inline":
        run(folder, InlineRunner(2))
        return
    from resurge.runtime.embedded_cluster.runner import runner_on

    run(folder, runner_on(master, "crashes"))
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
