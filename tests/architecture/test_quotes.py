"""Figures in the documents are those of the result files, and the files say where they come from."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("quote_results", ROOT / "scripts" / "quote_results.py")
quotes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(quotes)
RESULTS = sorted(quotes.RESULTS.glob("*.json"))


def relative(path: Path) -> str:
    """A path as a test's name shows it."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", quotes.documents(), ids=relative)
def test_every_quoted_figure_is_the_one_in_its_result_file(page):
    """`python scripts/quote_results.py` changes nothing."""
    assert quotes.quoted(page.read_text()) == page.read_text()


@pytest.mark.parametrize("path", RESULTS, ids=relative)
def test_a_result_file_says_where_it_comes_from(path):
    """Command, commit, date and machine; never a working tree with changes that nobody else has."""
    result = json.loads(path.read_text())
    assert {"command", "commit", "date", "machine"} <= result.keys()
    assert re.fullmatch(r"[0-9a-f]{7,40}", result["commit"]), f"measured at {result['commit']!r}: expected a clean commit"


def test_a_figure_that_differs_is_seen():
    """The check can fail."""
    name = RESULTS[0].stem
    text = f"<!--={name}:command|-->typed in by hand<!--/-->"
    assert quotes.quoted(text) != text
