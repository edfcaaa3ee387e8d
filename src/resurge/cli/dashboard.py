"""resurge dashboard: a web page over a job's telemetry and durable store."""

from pathlib import Path
from typing import Annotated

import typer

HELP = (
    "Show a job on a web page: topology, queries, nodes, recoveries, checkpoints, and why decisions were taken.\n\n"
    "TARGET is the checkpoint URL that the job was run with, or a telemetry log (.jsonl). The page follows a job that runs, "
    "across restarts of its driver, and shows a finished one as it ended. It needs neither Spark nor the job's file, and changes "
    "nothing. It is served on this machine only, unless --host says otherwise; there is no password.\n\n"
    """\b
Examples:
  resurge dashboard out/trending
  resurge dashboard out/trending/telemetry.jsonl --port 0
  resurge dashboard s3://bucket/job --log /var/log/resurge/telemetry.jsonl
"""
)
PORT = 8473


def command(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Checkpoint URL, or telemetry log.")],
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port to serve on; 0 takes a free one.")] = PORT,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to serve on.")] = "127.0.0.1",
    log: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Telemetry log, where it is not beside the checkpoints.")
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    follow_input: Annotated[bool, typer.Option("--follow-input", hidden=True, help="End when standard input is closed.")] = False,
) -> None:
    """Find the log, serve, say where."""
    import webbrowser

    from resurge.dashboard.serving import feed_of, serve

    def progress(address: str) -> None:
        print(f"dashboard of {target}: {address} (Ctrl-C stops it)", flush=True)
        if browser:
            webbrowser.open(address)

    if follow_input:
        _end_with_input()
    serve(feed_of(target, log), host, port, progress)


def _end_with_input() -> None:
    """End this process when whoever started it closes our input, or is gone."""
    import os
    import signal
    import sys
    import threading

    def wait() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
