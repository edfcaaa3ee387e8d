"""resurge study ...: experiments that write CSV, plots and a summary."""

import typer

app = typer.Typer(no_args_is_help=True, help="Repeat the papers' experiments; each writes CSV, plots and a summary to --out.")
