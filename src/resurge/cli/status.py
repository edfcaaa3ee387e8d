"""resurge status: what the durable store says of a job."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from resurge.storage.checkpoint_store import CheckpointManifest
    from resurge.storage.stored_job import StoredJob
    from resurge.telemetry.cluster_view import ClusterView

MOST_NAMED = 5
HELP = (
    "Show how far a job is, from what is kept at its checkpoint URL.\n\n"
    "Needs neither Spark nor the job's file, and changes nothing: safe beside a running job. Exits with 1 if "
    "--verify finds a torn or missing file.\n\n"
    """\b
Examples:
  resurge status out/trending
  resurge status s3://bucket/trending --verify
  resurge status out/trending --json
"""
)


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The checkpoint URL that the job was run with.")],
    check: Annotated[bool, typer.Option("--verify", help="Read every checkpoint file and compare its checksum.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read, show, and fail if files are not whole."""
    from resurge.storage.stored_job import open_job

    status = status_of(open_job(url), time.time(), check=check)
    if as_json:
        import msgspec

        print(msgspec.json.encode(status).decode())
    else:
        _show(status)
    if any(found is not None for found in (status["checkpoints"] or {}).values()):
        raise typer.Exit(1)


def status_of(job: "StoredJob", now_s: float, *, check: bool) -> dict[str, Any]:
    """Everything that is shown, as plain values; `checkpoints` is None unless files were checked."""
    import msgspec

    from resurge.storage.skips import read_skips

    manifest, problems = job.newest_checkpoint()
    record = next((r for r in job.checkpoints if manifest is not None and r.epoch == manifest.epoch), None)
    written = job.written_at(record.manifest) if record is not None else None
    return {
        "url": job.store.shown_url,
        "topology": job.identity.topology,
        "key_groups": job.identity.key_groups,
        "generation": job.generation,
        "planned_epoch": job.planned_epoch,
        "committed_epoch": job.committed_epoch,
        "checkpoint_epoch": manifest.epoch if manifest is not None else None,
        "checkpoint_age_s": max(0.0, now_s - written.timestamp()) if written is not None else None,
        "absent": {str(epoch): names for epoch, names in sorted(job.absent.items())},
        "gaps": {name: msgspec.structs.asdict(gap) for name, gap in sorted(manifest.gaps.items())} if manifest else {},
        "offsets": offsets_of(job, manifest),
        "skipped": [{"source": skip.source, "file": skip.file, "at_s": skip.at_s} for skip in read_skips(job.store)],
        "state": state_sizes(manifest),
        "copies": dict(manifest.copies) if manifest is not None else {},
        "problems": problems,
        **placement_of(job),
        "checkpoints": {str(epoch): found for epoch, found in job.problems().items()} if check else None,
    }


def placement_of(job: "StoredJob") -> dict[str, Any]:
    """What nodes held and used, and the last moves, as the driver said last; empty where its telemetry is not beside the job."""
    cluster = cluster_of(job)
    nodes = {
        cluster.names.get(node, node): {"utilisation": cluster.utilisation(node), "partitions": dict(load.partitions)}
        for node, load in cluster.loads.items()
    }
    moves = [
        {
            "at_s": move.at_s,
            "moved": move.moved,
            "took_s": move.took_s,
            "pause_s": move.pause_s,
            "shipped_bytes": move.shipped_bytes,
            "failure": move.failure,
        }
        for move in cluster.moves
    ]
    return {"nodes": nodes, "moves": moves}


def cluster_of(job: "StoredJob") -> "ClusterView":
    """The cluster as the telemetry of the newest driver tells it."""
    from resurge.storage import paths
    from resurge.telemetry.cluster_view import ClusterView, after
    from resurge.telemetry.log import read_events

    cluster = ClusterView()
    path = Path(job.store.path(paths.TELEMETRY)) if job.store.is_local else None
    if path is not None and path.exists():
        for event in read_events(path):
            cluster = after(cluster, event)
    return cluster


def offsets_of(job: "StoredJob", manifest: "CheckpointManifest | None") -> dict[str, Any]:
    """How far each source was read by the last committed epoch."""
    from resurge.storage.journal import EpochPlanned

    reached = dict(manifest.reached) if manifest is not None else {}
    plans = [r for r in job.records if isinstance(r, EpochPlanned) and r.epoch <= job.committed_epoch]
    for planned in sorted(plans, key=lambda plan: plan.epoch):
        reached |= {source: end for source, (_, end) in planned.offsets.items()}
    return reached


def state_sizes(manifest: "CheckpointManifest | None") -> dict[str, dict[str, int]]:
    """Rows (superseded ones that are not compacted yet included), bytes and partitions per operator."""
    from resurge.storage.runs import RunRef

    sizes: dict[str, dict[str, int]] = {}
    for cohort in manifest.cohorts if manifest is not None else ():
        size = sizes.setdefault(cohort.operator, {"partitions": 0, "rows": 0, "bytes": 0})
        size["partitions"] += len(cohort.key_groups)
        for run in (run for table in cohort.tables.values() for run in table.runs):
            size["rows"] += run.rows
            size["bytes"] += sum(RunRef.decode(place).length for place in run.durable)
    return dict(sorted(sizes.items()))


def _show(status: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    console.print(_facts(status))
    if status["state"]:
        console.print()
        console.print(_state_table(status["state"]))
    if len(status["nodes"]) > 1 or status["moves"]:
        console.print()
        for table in _placement(status):
            console.print(table)
    for problem in status["problems"]:
        console.print(f"warning: {problem}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for epoch, found in (status["checkpoints"] or {}).items():
        words = "whole" if found is None else found
        console.print(f"checkpoint of epoch {epoch}: {words}", highlight=False, markup=False, soft_wrap=True)
    if status["checkpoints"] == {}:
        console.print("there is no checkpoint to verify")


def _facts(status: dict[str, Any]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from resurge.telemetry.wording import seconds_in_words

    age = status["checkpoint_age_s"]
    checkpoint = "none" if status["checkpoint_epoch"] is None else f"epoch {status['checkpoint_epoch']:,}"
    recovery = [
        ("topology", status["topology"]),
        ("key groups", str(status["key_groups"])),
        ("generation", str(status["generation"])),
        ("planned", f"epoch {status['planned_epoch']:,}"),
        ("committed", f"epoch {status['committed_epoch']:,}"),
        ("checkpoint", checkpoint + (f", {seconds_in_words(age)} old" if age is not None else "")),
        *(("not live then", _absent(names, int(epoch), status["committed_epoch"])) for epoch, names in status["absent"].items()),
        *((("copies", _copies(status["copies"], status["checkpoint_epoch"])),) if status["copies"] else ()),
        *((f"given up, {name}", _gap(gap)) for name, gap in status["gaps"].items()),
        *(
            (f"read of {source}", ", ".join(f"{key} {value}" for key, value in at.items()))
            for source, at in status["offsets"].items()
        ),
        *((f"skipped of {skip['source']}", f"{skip['file']}, since {_moment(skip['at_s'])}") for skip in status["skipped"]),
    ]
    table = Table.grid(padding=(0, 3))
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in recovery:
        table.add_row(Text(name, style="dim"), Text(value))
    return table


def _placement(status: dict[str, Any]) -> "Iterator[Any]":
    """The nodes as the live view shows them, and the last moves."""
    from rich.text import Text

    from resurge.cli.placement import move_in_words, node_table
    from resurge.telemetry.cluster_view import ClusterView
    from resurge.telemetry.events import MoveEnded, NodeLoad

    loads = {
        name: NodeLoad(node["utilisation"] or 0.0, 0.0 if node["utilisation"] is None else 1.0, node["partitions"])
        for name, node in status["nodes"].items()
    }
    yield node_table(ClusterView(loads=loads))
    for move in status["moves"]:
        ended = MoveEnded(
            move["at_s"], "", move["moved"], move["took_s"], move["pause_s"], move["shipped_bytes"], move["failure"]
        )
        yield Text(f"{_moment(move['at_s'])}: {move_in_words(ended)}", style="dim")


def _absent(names: list[str], epoch: int, head: int) -> str:
    """Who was not live, and what is kept for them."""
    shown = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else "")
    return f"{shown}: input since epoch {epoch:,} is kept for them, {head - epoch:,} epochs"


def _copies(copies: dict[str, dict[str, int]], epoch: int) -> str:
    """How many copies there were at the checkpoint, on which nodes, and how old the oldest was."""
    counts: dict[str, int] = {}
    for node in (node for nodes in copies.values() for node in nodes):
        counts[node] = counts.get(node, 0) + 1
    oldest = min(at for nodes in copies.values() for at in nodes.values())
    listed = ", ".join(f"{count} on {node}" for node, count in sorted(counts.items()))
    return f"{sum(counts.values())} of {len(copies)} partitions: {listed}; the oldest {epoch - oldest:,} epochs before the checkpoint"


def _gap(gap: dict[str, int]) -> str:
    return f"skipped {gap['epochs']:,} epochs from {gap['first']:,} to {gap['last']:,}, in which the sources had {gap['rows']:,} rows"


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _state_table(sizes: dict[str, dict[str, int]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from resurge.telemetry.wording import bytes_in_words

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("operator")
    for name in ("partitions", "rows in checkpoint", "size"):
        table.add_column(name, justify="right")
    for operator, size in sizes.items():
        table.add_row(Text(operator), str(size["partitions"]), f"{size['rows']:,}", bytes_in_words(size["bytes"]))
    return table
