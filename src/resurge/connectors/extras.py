"""Client libraries that are optional: each belongs to an extra of this package."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from resurge.errors import TopologyError


def check_extra(module: str, extra: str, user: str) -> None:
    """Refuse a connector whose client library is not installed, and name the extra that has it."""
    if find_spec(module) is None:
        raise TopologyError(f"{user} needs the package {module!r}, which is not installed: pip install 'resurge[{extra}]'")


def client_library(module: str, extra: str, user: str) -> Any:
    """A client library, or a clear refusal."""
    check_extra(module.partition(".")[0], extra, user)
    return import_module(module)
