"""resurge study ...: experiments that write CSV, plots and a summary."""

import typer

from resurge.cli import (
    study_backup_sites,
    study_checkpoint_placement,
    study_correlated_failure,
    study_migration,
    study_recovery_plans,
)
from resurge.cli.usage_errors import OneLineUsageErrors

app = typer.Typer(
    cls=OneLineUsageErrors,
    no_args_is_help=True,
    help="Repeat the papers' experiments; each writes CSV, plots and a summary to --out.",
)

app.command("recovery-plans", help=study_recovery_plans.HELP)(study_recovery_plans.command)
app.command("backup-sites", help=study_backup_sites.HELP)(study_backup_sites.command)
app.command("checkpoint-placement", help=study_checkpoint_placement.HELP)(study_checkpoint_placement.command)
app.command("migration", help=study_migration.HELP)(study_migration.command)
app.command("correlated-failure")(study_correlated_failure.correlated_failure)
