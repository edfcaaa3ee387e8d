"""Files of real machines and published benchmarks, where a copy lies beside the project or where RESURGE_DATA says."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("RESURGE_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def real(name: str) -> list[Path]:
    """The file if it is there: tests are parametrised with generated data and, in addition, with this."""
    path = FOLDER / name
    return [path] if path.exists() else []
