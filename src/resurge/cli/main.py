"""The resurge command: one module per subcommand, errors as one clear line."""

import sys
from typing import Annotated

import typer

from resurge.cli.settings import PREFIX
from resurge.errors import InfeasibleError, ProblemError, ResurgeError

app = typer.Typer(
    name="resurge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Many continuous queries on one Spark cluster: exactly once, and back one by one after a failure.",
)


def show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        import resurge

        print(f"resurge {resurge.__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of all commands."""


def run() -> None:
    """Entry point of the resurge command."""
    register()
    try:
        app()
    except (ProblemError, InfeasibleError) as error:
        print(f"resurge: {error}", file=sys.stderr)
        sys.exit(2)
    except ResurgeError as error:
        print(f"resurge: {error}", file=sys.stderr)
        sys.exit(1)


def register() -> None:
    """Attach every subcommand; kept out of import time so that `resurge plan` starts without Spark."""
    from resurge.cli import (
        balance,
        bench,
        chaos,
        cluster,
        dashboard,
        demo,
        doctor,
        drain,
        move,
        plan,
        replay,
        run,
        scale,
        skip,
        soak,
        state,
        status,
        study,
    )

    app.command("run", help=run.HELP, context_settings={"auto_envvar_prefix": PREFIX})(run.command)
    app.command("status", help=status.HELP)(status.command)
    app.command("state", help=state.HELP)(state.command)
    app.command("dashboard", help=dashboard.HELP)(dashboard.command)
    app.command("doctor", help=doctor.HELP)(doctor.command)
    app.command("skip", help=skip.HELP)(skip.command)
    app.command("replay", help=replay.HELP)(replay.command)
    app.command("move", help=move.HELP)(move.command)
    app.command("drain", help=drain.HELP)(drain.command)
    app.command("balance", help=balance.HELP)(balance.command)
    app.command("scale", help=scale.HELP)(scale.command)
    app.command("demo")(demo.demo)
    app.command("chaos")(chaos.chaos)
    app.command("soak")(soak.soak)
    app.add_typer(cluster.app, name="cluster")
    app.add_typer(bench.app, name="bench")
    app.add_typer(plan.app, name="plan")
    app.add_typer(study.app, name="study")
