"""resurge plan recovery | backups | checkpoints | moves."""

import typer

from resurge.cli import plan_backups, plan_checkpoints, plan_moves, plan_recovery
from resurge.cli.usage_errors import OneLineUsageErrors

app = typer.Typer(
    cls=OneLineUsageErrors,
    no_args_is_help=True,
    help="Plan without running anything: which queries first, which backups, where copies go, what moves.",
)

app.command("recovery", help=plan_recovery.HELP)(plan_recovery.command)
app.command("backups", help=plan_backups.HELP)(plan_backups.command)
app.command("checkpoints", help=plan_checkpoints.HELP)(plan_checkpoints.command)
app.command("moves", help=plan_moves.HELP)(plan_moves.command)
