"""Figures that documents quote are those of the result files."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("quote_results", ROOT / "scripts" / "quote_results.py")
quotes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(quotes)


def relative(path: Path) -> str:
    """A path as a test's name shows it."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", quotes.documents(), ids=relative)
def test_every_quoted_figure_is_the_one_in_its_result_file(page):
    """`python scripts/quote_results.py` changes nothing."""
    assert quotes.quoted(page.read_text()) == page.read_text()


def test_a_figure_that_differs_is_seen():
    """The check can fail."""
    name = "growth"
    text = f"<!--={name}:command|-->typed in by hand<!--/-->"
    assert quotes.quoted(text) != text
