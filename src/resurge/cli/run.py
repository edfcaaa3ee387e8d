"""resurge run: a topology from a file, until it is stopped; the next run goes on where this one ended."""

import logging
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resurge.cli.observing import Observers, observed
from resurge.cli.settings import from_file, with_job_file
from resurge.errors import JobError, StorageError
from resurge.redaction import redacted

if TYPE_CHECKING:
    from rich.console import Console

    from resurge.cli.live_view import View
    from resurge.model.topology import Topology
    from resurge.runtime.driver.engine import Engine
    from resurge.runtime.driver.options import RunOptions
    from resurge.telemetry.log import TelemetryLog

INTERRUPTED = 130
NOT_KEPT = "nothing of the job is kept but its output: give --checkpoint to resume it"

HELP = (
    "Run the topology that a Python file describes.\n\n"
    'TARGET is FILE.py, or FILE.py:NAME if the topology is not called "topology". The value of that name is a Topology or a '
    "TopologyBuilder. The file is the same on a laptop and on a cluster.\n\n"
    "Ctrl-C (or SIGTERM) finishes the current epoch, makes a checkpoint and exits with 0; a second one stops at once. Either "
    "way, and after a crash too, the same command with the same --checkpoint goes on where the job was: no row is lost, none is "
    "shown twice.\n\n"
    """\b
Examples:
  resurge run trending.py --checkpoint out/trending
      on this machine until Ctrl-C; run it again to resume
  resurge run trending.py --until-idle --drain --report out/report.html
      all input there is, all windows closed; then a report with plots
  resurge run jobs.py:alerts --interval 500ms --epochs 100
      a topology of another name, shorter epochs, a hundred of them
  resurge run jobs.py --master spark://host:7077 --checkpoint s3://bucket/job
      on a cluster, kept in an object store
  resurge run --config job.toml --dashboard 8473 --metrics 9464
      options from a file; a web page and a Prometheus endpoint on this machine

\b
An option is looked for on the command line, in the environment (RESURGE_MASTER for --master, and so on), in the --config file,
in a dict called options in the job's file, in this order; the first that has it counts.
"""
)


@dataclass(frozen=True)
class Limits:
    """When a run ends by itself."""

    epochs: int | None = None
    until_idle: bool = False
    drain: bool = False


def command(  # noqa: PLR0913, PLR0917 (one parameter per option)
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="FILE.py, or FILE.py:NAME.")],
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master: local[N], spark://..., yarn, k8s://...")] = "local[*]",
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where the job is kept: a folder or any fsspec URL; a temporary folder if not given."),
    ] = None,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Time between epochs: 1s, 500ms; 0 is as fast as possible.")
    ] = "1s",
    epochs: Annotated[int | None, typer.Option(min=0, metavar="N", help="End after N epochs.")] = None,
    checkpoint_interval: Annotated[
        str, typer.Option(metavar="TIME|N", help="Checkpoint every 10s, or every N epochs; 0 is never.")
    ] = "10s",
    max_rows: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="At most N input rows per epoch; while more wait, the next epoch follows at once."),
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="After a loss of nodes: incremental, blocking, eager or source-replay.")
    ] = "incremental",
    balance: Annotated[
        str, typer.Option(metavar="auto|off", help="Whether key groups move by themselves when load is uneven.")
    ] = "auto",
    scale: Annotated[
        str | None,
        typer.Option(metavar="MIN..MAX", help="Ask for nodes when there is too much to do, give them back when there is little."),
    ] = None,
    copies: Annotated[
        str,
        typer.Option(metavar="N", help="Copies of each state on other nodes, as 1; or by operator too, as 1,totals=2."),
    ] = "0",
    copies_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Refresh copies every N epochs; at checkpoints if not given.")
    ] = None,
    use_drained: Annotated[bool, typer.Option("--use-drained", help="Use nodes that were drained in an earlier run.")] = False,
    most_epochs_kept: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Keep the input of at most N epochs for partitions that find no node."),
    ] = None,
    when_too_far_behind: Annotated[
        str, typer.Option(metavar="stop|give-up", help="Beyond that: end, or let them skip it, and count what they skip.")
    ] = "stop",
    local_store: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where nodes keep state while they run; shared memory if there is enough, else /tmp."),
    ] = None,
    local_store_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="At most so much there per node, such as 2g; the rest goes to disk.")
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when there is no input left.")] = False,
    drain: Annotated[bool, typer.Option("--drain", help="At the end, close all windows as if no more input could come.")] = False,
    report: Annotated[Path | None, typer.Option(metavar="PATH", help="Write a report (one HTML file) at the end.")] = None,
    spark_ui: Annotated[bool, typer.Option("--spark-ui", help="Serve Spark's own web page; its address is printed.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", is_eager=True, callback=from_file, help="Take options from this TOML file."),
    ] = None,
    dashboard: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="Serve the dashboard on this machine; 0 takes a free port."),
    ] = None,
    metrics: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Serve Prometheus metrics; 0 takes a free port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address that metrics are served on.")] = "127.0.0.1",
    traces: Annotated[
        str | None, typer.Option(metavar="URL", help="Export spans by OTLP over HTTP, as to http://127.0.0.1:4318/v1/traces.")
    ] = None,
) -> None:
    """Load, run, say how to go on."""
    from resurge.cli.job_file import load_job

    topology, carried = load_job(target)
    chosen = with_job_file(ctx, carried, target)
    defaults = {str(parameter.name): parameter.default for parameter in ctx.command.params}
    run_with(topology, chosen, again_command(chosen, defaults))


def again_command(chosen: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The command that goes on with a job: every option that is not as it would be by itself."""
    words = ["resurge", "run", str(chosen["target"])]
    for name in defaults:
        value = chosen.get(name)
        if name in {"target", "config"} or value == defaults[name]:
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [redacted(str(value))])]
    return shlex.join(words)


def run_with(topology: "Topology", chosen: Mapping[str, Any], again: str) -> None:
    """Run a topology with options by their names, and say how to go on."""
    from rich.console import Console

    from resurge.api.running import interval_seconds
    from resurge.model.sizes import size_bytes
    from resurge.runtime.driver.options import RunOptions
    from resurge.runtime.driver.session import default_local_root
    from resurge.telemetry.log import TelemetryLog

    url = chosen["checkpoint"] or tempfile.mkdtemp(prefix="resurge-job-")
    is_kept = bool(chosen["checkpoint"])
    options = RunOptions(
        url,
        interval_s=interval_seconds(chosen["interval"]),
        checkpoint_interval=chosen["checkpoint_interval"],
        max_rows_per_epoch=chosen["max_rows"],
        strategy=chosen["strategy"],
        balance=chosen["balance"],
        scale=chosen["scale"],
        most_epochs_kept=chosen["most_epochs_kept"],
        when_too_far_behind=chosen["when_too_far_behind"],
        **copies_of(str(chosen["copies"])),
        copies_every=chosen["copies_every"],
        uses_drained=chosen["use_drained"],
        local_root=chosen["local_store"] or default_local_root(),
        local_limit_bytes=None if chosen["local_store_limit"] is None else size_bytes(chosen["local_store_limit"]),
    )
    limits = Limits(chosen["epochs"], chosen["until_idle"], chosen["drain"])
    observers = Observers(chosen["dashboard"], chosen["metrics"], chosen["metrics_host"], chosen["traces"])
    refuse_other_job(topology, url)
    console = Console()
    _warn_of_memory_sinks(topology, console)
    try:
        with TelemetryLog(telemetry_path(url)) as telemetry, observed(telemetry, url, topology.name, observers, console.print):
            log = spark_log(telemetry) if is_kept else None
            options = replace(options, input_log=telemetry.path.with_suffix(".inputs")) if is_kept and telemetry.path else options
            stopped = _run_on_spark(
                topology, OnSpark(chosen["master"], options, limits, log, chosen["spark_ui"]), telemetry, console
            )
        conclude(telemetry, console, stopped=stopped, again=again if is_kept else None, report=chosen["report"])
    finally:
        if not is_kept:
            shutil.rmtree(url, ignore_errors=True)


def copies_of(text: str) -> dict[str, Any]:
    """How many copies, of all operators and of some.

    >>> copies_of("1,totals=2")
    {'copies': 1, 'copies_by_operator': {'totals': 2}}
    """
    found = dict[str, int]()
    for part in text.split(","):
        operator, _, number = part.strip().rpartition("=")
        if not number.isdigit():
            raise JobError(f"--copies has {part.strip()!r}; expected a number, or OPERATOR=NUMBER, as in 1,totals=2")
        if operator in found:
            raise JobError(f"--copies has two numbers for {operator or 'all operators'}; expected one, as in 1,totals=2")
        found[operator] = int(number)
    return {"copies": found.pop("", 0), "copies_by_operator": found}


@dataclass(frozen=True)
class OnSpark:
    """Where and how a topology is run."""

    master: str
    options: "RunOptions"
    limits: Limits
    log: Path | None
    has_ui: bool = False


def _run_on_spark(topology: "Topology", where: OnSpark, telemetry: "TelemetryLog", console: "Console") -> bool:
    from resurge.cli.live_view import open_view, starting
    from resurge.runtime.driver.engine import Engine
    from resurge.runtime.driver.gateway import pointing_to_log, remove_temporary_logs
    from resurge.runtime.embedded_cluster.runner import refuse_scale, runner_on, scaler_on

    refuse_scale(where.master, where.options)
    with starting(console, where.master):
        settings = {"spark.ui.enabled": "true"} if where.has_ui else {}
        runner = runner_on(where.master, f"resurge {topology.name}", where.log, settings)
    if where.has_ui:
        console.print(f"Spark's own page: {runner.spark.sparkContext.uiWebUrl}", highlight=False, soft_wrap=True)
    try:
        with pointing_to_log():
            scaler = None if where.options.scale is None else scaler_on(runner)
            return drive(Engine(topology, runner, where.options, telemetry, scaler), where.limits, open_view(console))
    except KeyboardInterrupt:
        url = str(where.options.checkpoint_url)
        told = f"the current epoch is run again when the job at {redacted(url)} is resumed" if where.log is not None else NOT_KEPT
        console.print(f"stopped at once: {told}", highlight=False, soft_wrap=True)
        if where.log is None:
            shutil.rmtree(url, ignore_errors=True)
            remove_temporary_logs()
        # Spark would first wait for the epoch that nobody wants to wait for; it ends with this process.
        os._exit(INTERRUPTED)
    finally:
        runner.spark.stop()


def drive(engine: "Engine", limits: Limits, view: "View") -> bool:
    """Run an engine with a view until a limit, a signal or an error; whether a signal ended it."""
    from resurge.runtime.driver.engine import run_until_done

    engine.telemetry.listeners.append(view.on_event)
    with view, stopped_by_signals(engine, view):
        run_until_done(engine, epochs=limits.epochs, until_idle=limits.until_idle, drain=limits.drain)
    return engine.stopping.is_set()


@contextmanager
def stopped_by_signals(engine: "Engine", view: "View") -> Iterator[None]:
    """The first Ctrl-C or SIGTERM lets the current epoch finish, the second does not."""

    def ask_to_stop(number: int, frame: FrameType | None) -> None:
        if engine.stopping.is_set():
            # The call to Spark that this breaks off would be logged with its whole traceback.
            logging.disable(logging.CRITICAL)
            raise KeyboardInterrupt
        engine.stop()
        view.on_stop_asked()

    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)


def spark_log(telemetry: "TelemetryLog") -> Path:
    """Where Spark's own messages go, and what operators print to standard error: beside the telemetry."""
    return telemetry.path.with_name("spark.log") if telemetry.path is not None else Path(os.devnull)


def refuse_other_job(topology: "Topology", url: str) -> None:
    """What does not fit the job that is there is refused before Spark is started; the engine refuses it again."""
    from resurge.storage.durable import DurableStore
    from resurge.storage.job_store import identity_of, read_identity, refuse_difference

    known = read_identity(DurableStore(url))
    if known is not None:
        refuse_difference(known, identity_of(topology), url)


def telemetry_path(url: str) -> Path:
    """Beside the checkpoints where that is a local folder, else a temporary file."""
    from resurge.storage import paths
    from resurge.storage.durable import DurableStore
    from resurge.telemetry.log import open_for_owner

    store = DurableStore(url)
    if not store.is_local:
        return Path(tempfile.mkdtemp(prefix="resurge-telemetry-")) / paths.TELEMETRY
    path = Path(store.path(paths.TELEMETRY))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open_for_owner(path).close()
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; expected a folder for the job: set its permissions right, or give "
            "--checkpoint another place"
        ) from error
    return path


def conclude(telemetry: "TelemetryLog", console: "Console", *, stopped: bool, again: str | None, report: Path | None) -> None:
    """What the run did, where its telemetry and report are, and how to go on; without a command for that, nothing is kept."""
    from resurge.cli.live_view import query_table
    from resurge.telemetry import metrics
    from resurge.telemetry.log import read_events

    path = telemetry.path
    if path is None:
        return
    events = list(read_events(path))
    now = metrics.snapshot(events, 0.0)
    if not console.is_terminal and now.queries:
        console.print(query_table(now))
    ended = "stopped" if stopped else "done"
    lines = [f"{ended} after epoch {now.epoch}; {NOT_KEPT}"]
    if again is not None:
        lines = [
            f"{ended} after epoch {now.epoch}; resume with: {again}",
            f"telemetry: {path}",
            f"what Spark said: {spark_log(telemetry)}",
        ]
    if report is not None:
        from resurge.report import write_report

        lines.append(f"report: {write_report(events, report)}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _warn_of_memory_sinks(topology: "Topology", console: "Console") -> None:
    from resurge.connectors.sinks import MemorySink

    names = [query.name for query in topology.queries.values() if isinstance(query.sink, MemorySink)]
    if names:
        console.print(
            f"note: {', '.join(names)}: no sink was given, so rows are kept in memory and gone when the run ends; "
            "pass sink=ParquetSink(...) to query() to keep them",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
