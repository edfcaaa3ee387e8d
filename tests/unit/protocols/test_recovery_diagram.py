"""The documentation's diagram is drawn from the protocol's table."""

import importlib.util
from pathlib import Path

from resurge.protocols.recovery import TRANSITIONS

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_with_the_state_diagram_is_up_to_date() -> None:
    """If not: python scripts/draw_recovery_diagram.py."""
    spec = importlib.util.spec_from_file_location("draw_recovery_diagram", ROOT / "scripts" / "draw_recovery_diagram.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / "docs" / "recovery-states.md").read_text() == script.page()
    assert script.page().count("-->") == len(TRANSITIONS)
