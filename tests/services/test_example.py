"""The example with real servers prints what the file beside it says."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "connected" / "orders.py"


def test_example_prints_what_stands_beside_it(kafka_servers, postgres, unique):
    """The input is always the same, so is what the servers have in the end."""
    given = {"RESURGE_KAFKA": kafka_servers, "RESURGE_POSTGRES": postgres, "RESURGE_EXAMPLE": f"sales_{unique[-6:]}"}
    done = subprocess.run([sys.executable, str(EXAMPLE)], env=os.environ | given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == EXAMPLE.with_suffix(".out").read_text()
