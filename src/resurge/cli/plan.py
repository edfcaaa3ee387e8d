"""resurge plan recovery | backups | checkpoints."""

import typer

app = typer.Typer(
    no_args_is_help=True, help="Plan without running anything: which queries first, which backups, where copies go."
)
