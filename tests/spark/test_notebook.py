"""The example notebook: every cell runs, and what it shows is what is kept in it."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "trending_notebook.ipynb"
SAME = "cell-7"
PATIENCE_S = 240


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook, run from its first cell to its last in a kernel of its own."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def outputs(notebook: nbformat.NotebookNode) -> dict[str, dict[str, str]]:
    """What each code cell shows, by kind."""
    return {
        cell.id: {kind: "".join(text) for output in cell.outputs for kind, text in output.get("data", {}).items()}
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


@pytest.mark.timeout(600)
def test_notebook_runs_and_shows_what_it_has_always_shown(tmp_path):
    """Counts are the same in each run; tables and plots render as HTML."""
    found, kept = outputs(executed(NOTEBOOK, tmp_path)), outputs(nbformat.read(NOTEBOOK, as_version=4))
    assert found.keys() == kept.keys()
    assert found[SAME]["text/plain"] == kept[SAME]["text/plain"]
    assert "queries live" in found["cell-5"]["text/html"]
    assert "<svg" in found["cell-9"]["text/html"]
    assert found["cell-11"]["text/plain"] == "'finished'"
