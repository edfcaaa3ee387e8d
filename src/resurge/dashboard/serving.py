"""Serve the dashboard: a socket on loopback unless told otherwise, until interrupted."""

import socket
from collections.abc import Callable
from pathlib import Path

from resurge.dashboard.feed import Feed
from resurge.errors import DashboardError
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.telemetry.log import read_events

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BACKLOG = 128
EXTRA = "the dashboard needs Starlette and Uvicorn; install them with: pip install 'resurge[dashboard]'"


def feed_of(target: str, log: Path | None = None) -> Feed:
    """What a checkpoint URL or a telemetry log has to show."""
    if target.endswith((".jsonl", ".log")) or Path(target).is_file():
        if not Path(target).is_file():
            raise DashboardError(f"there is no file {target}; expected a telemetry log (.jsonl) or a job's checkpoint URL")
        if Path(target).stat().st_size and next(read_events(Path(target)), None) is None:
            raise DashboardError(f"{target} has no events; expected a telemetry log (.jsonl) or a job's checkpoint URL")
        return Feed(Path(target), is_live=True)
    store = DurableStore(target)
    local = Path(store.path(paths.TELEMETRY)) if store.is_local else None
    found = log or local
    if log is None and not store.exists(paths.JOB) and (found is None or not found.is_file()):
        raise DashboardError(
            f"there is neither a job nor telemetry at {target}; expected the checkpoint URL that a job was run with, or a telemetry log"
        )
    # Telemetry of a job in an object store is a file of the driver's machine, which the user may name.
    return Feed(found or Path("/nonexistent"), target)


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve on; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        # From now on connections wait, so that the address can be told before the server runs.
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise DashboardError(
            f"cannot listen on {host}, port {port}: {error.strerror}; expected a free port of this machine: choose another "
            "with --port, or 0 for any"
        ) from None
    return opened


def serve(feed: Feed, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until interrupted; `tell` is given the address first."""
    try:
        import uvicorn

        from resurge.dashboard.app import build_app
    except ImportError as error:
        raise DashboardError(f"{EXTRA} ({error.name} is missing)") from None
    opened = listen(host, port)
    hosts = ("127.0.0.1", "localhost") if host in LOOPBACK else ("*",)
    config = uvicorn.Config(build_app(feed, hosts), log_level="warning", timeout_graceful_shutdown=1)
    tell(f"http://{host}:{opened.getsockname()[1]}/")
    with opened:
        uvicorn.Server(config).run(sockets=[opened])
