"""Wrong options in one line, as every other refusal."""

from typing import Any

import typer
from typer.core import TyperGroup

from resurge.errors import ProblemError

# Typer names the base of its option errors only through its subclasses.
_UsageError: Any = typer.BadParameter.__base__


class OneLineUsageErrors(TyperGroup):
    """A group of subcommands in which a missing, unknown or malformed option is a ProblemError: one line, exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen subcommand."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            message = " ".join(error.format_message().split())
            where = error.ctx.command_path if error.ctx is not None else ctx.command_path
            raise ProblemError(f"{message.rstrip('.')}; see `{where} --help`") from None
