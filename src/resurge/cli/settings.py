"""Where options of a run come from: command line, environment, --config file, job file, defaults; in this order."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from resurge.errors import ProblemError

PREFIX = "RESURGE"
TABLE = "run"
NOT_IN_FILES = {"config", "help"}


def from_file(ctx: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a TOML file as defaults; a callback of the --config option."""
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **file_options(path, _known(ctx))}
    return path


def file_options(path: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a TOML file has, at its top or in a table [run]; the target is relative to the file."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise ProblemError(
            f"--config {path}: {error.strerror}; expected a TOML file such as: checkpoint = 's3://bucket/job'"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProblemError(f"--config {path} is not TOML: {error}; expected lines such as: interval = '500ms'") from None
    table = content.pop(TABLE, {})
    found = checked({**content, **table}, known, str(path))
    if isinstance(found.get("target"), str) and not Path(found["target"]).is_absolute():
        found["target"] = str(path.parent / found["target"])
    return found


def with_job_file(ctx: typer.Context, carried: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All options of a command, those that nobody chose taken from what the job file carries."""
    chosen = dict(ctx.params)
    for name, value in checked(carried, _known(ctx), f"the options of {where}").items():
        source = ctx.get_parameter_source(name)
        if name in chosen and source is not None and source.name == "DEFAULT":
            try:
                chosen[name] = _known(ctx)[name].process_value(ctx, value)
            except Exception as error:
                raise ProblemError(f"the options of {where}: {name} is {value!r}: {error}") from None
    return chosen


def checked(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Options by parameter name; an unknown one is refused with those there are."""
    found = {str(name).replace("-", "_"): value for name, value in given.items()}
    unknown = sorted(set(found) - set(known))
    if unknown:
        names = ", ".join(sorted(name.replace("_", "-") for name in known))
        raise ProblemError(f"{where}: there is no option {unknown[0].replace('_', '-')!r}; expected some of {names}")
    return found


def _known(ctx: typer.Context) -> dict[str, Any]:
    return {str(parameter.name): parameter for parameter in ctx.command.params if parameter.name not in NOT_IN_FILES}
