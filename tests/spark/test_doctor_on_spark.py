"""The doctor looks at real executors."""

import json
import subprocess
import sys

RUN = "from resurge.cli.main import run; run()"


def test_executors_of_this_machine_have_the_drivers_versions(tmp_path):
    """A real session, a real job, a real store: everything is fine."""
    ended = subprocess.run(
        [sys.executable, "-c", RUN, "doctor", "--master", "local[2]", "--checkpoint", str(tmp_path / "jobs"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = {finding["check"]: finding for finding in json.loads(ended.stdout)}
    assert found["session"]["verdict"] == "fine"
    assert found["versions on executors"]["verdict"] == "fine"
    assert found["clocks of executors"]["verdict"] == "fine"
