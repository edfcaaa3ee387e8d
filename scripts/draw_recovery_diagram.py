"""Draw the state diagram of the recovery protocol from its table: `python scripts/draw_recovery_diagram.py` rewrites the page."""

from pathlib import Path

from resurge.protocols.recovery import TRANSITIONS, Phase

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recovery-states.md"


def diagram() -> str:
    """Every phase and every transition, as Mermaid text."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {phase.name}: {phase.value}" for phase in Phase]
    lines += [f"    {phase.name} --> {after.name}: {event.value}" for (phase, event), after in TRANSITIONS.items()]
    return "\n".join(lines)


def page() -> str:
    """The page that the documentation links to."""
    return (
        "# What becomes of a partition when nodes die\n\n"
        "Drawn from the table in `src/resurge/protocols/recovery.py` by `scripts/draw_recovery_diagram.py`; do not edit.\n\n"
        f"```mermaid\n{diagram()}\n```\n\n"
        "Every event that has no arrow is refused, with a message that names the phase and the events it accepts. A job begins\n"
        "with every partition down at its newest checkpoint: a start, a restart and a lost node are one mechanism.\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
