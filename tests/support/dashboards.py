"""A dashboard as users start it: a process of its own."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.support.processes import ROOT, kill_group

START_TIMEOUT_S = 60
RUN = "from resurge.cli.main import run; run()"


@contextlib.contextmanager
def dashboard(target: str, port: int = 0) -> Iterator[str]:
    """Serve a target and give the address."""
    command = [sys.executable, "-c", RUN, "dashboard", target, "--port", str(port)]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert started.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        found = None
        while found is None:
            line = started.stdout.readline()
            assert line or started.poll() is None, "the dashboard ended"
            assert time.monotonic() < deadline, "the dashboard did not start"
            found = re.search(r"http://\S+", line)
        yield found[0]
    finally:
        kill_group(started)
