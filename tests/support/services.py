"""The real servers that scripts/services.sh starts: where they are, and why not if they are not there."""

import os
import re
import socket
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "services.sh"
FOLDER = Path(os.environ.get("RESURGE_SERVICES", ROOT / "build" / "services"))


def address(service: str) -> str:
    """Where a service is, or an empty string."""
    port = FOLDER / f"{service}.port"
    if not port.exists():
        return ""
    where = f"127.0.0.1:{port.read_text().strip()}"
    try:
        socket.create_connection(("127.0.0.1", int(where.partition(":")[2])), timeout=2).close()
    except OSError:
        return ""
    return where


def why_missing(service: str) -> str:
    """The reason for which the tests of a service are skipped."""
    told = FOLDER / f"{service}.unavailable"
    reason = told.read_text().strip() if told.exists() else "it is not running: scripts/services.sh start"
    return f"no {service}: {reason}"


def postgres_dsn() -> str:
    """How to connect to the database."""
    return f"host=127.0.0.1 port={address('postgres').partition(':')[2]} user=resurge dbname=postgres"


def restart(service: str) -> None:
    """Kill a server as a power failure would, and start it again on the same port."""
    done = subprocess.run(["bash", str(SCRIPT), "restart", service], capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr


def stop(service: str) -> None:
    """Stop one server as a power failure would."""
    subprocess.run(["bash", str(SCRIPT), "kill", service], check=True, timeout=60)


def safe_name(text: str) -> str:
    """A test's name as a topic or table name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower())[:80]
