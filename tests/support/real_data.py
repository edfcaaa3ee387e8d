"""Files of real machines and published benchmarks, in the folder that RESURGE_DATA names."""

import os
from pathlib import Path

FOLDER = os.environ.get("RESURGE_DATA")


def real(name: str) -> list[Path]:
    """The file if it is there: tests are parametrised with generated data and, in addition, with this."""
    if not FOLDER:
        return []
    path = Path(FOLDER) / name
    return [path] if path.exists() else []
