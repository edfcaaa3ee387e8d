"""What a node must have in common with the driver to run its tasks: versions, code, and the hash of keys."""

import functools
import hashlib
import platform
import socket
from importlib import resources

import msgspec

from resurge.model.version import VERSION
from resurge.operators.hashing import fingerprint
from resurge.runtime.worker.executor import executor_id

FIELDS = {
    "python": "Python",
    "polars": "Polars",
    "pyarrow": "PyArrow",
    "resurge": "Resurge",
    "code": "Resurge code",
    "key_hash": "key hash",
}


class Fitness(msgspec.Struct, frozen=True):
    """What one process reports of itself; `code` is a fingerprint of the package's modules."""

    executor: str | None
    host: str
    python: str
    polars: str
    pyarrow: str
    resurge: str
    code: str
    key_hash: str


def own_fitness() -> Fitness:
    """What this process has."""
    import polars
    import pyarrow

    python = ".".join(platform.python_version_tuple()[:2])
    versions = (python, polars.__version__, pyarrow.__version__, VERSION)
    return Fitness(executor_id(), socket.gethostname(), *versions, code_fingerprint(), fingerprint())


@functools.cache
def code_fingerprint() -> str:
    """A fingerprint of all modules of the package: two states of the code may have the same version number."""
    digest = hashlib.sha256()
    for name, content in modules():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:10]


def modules() -> list[tuple[str, bytes]]:
    """Every file of the package that is needed to run it, with its path, in order."""
    found: list[tuple[str, bytes]] = []
    folders = [("resurge", resources.files("resurge"))]
    while folders:
        path, folder = folders.pop()
        for entry in folder.iterdir():
            if entry.is_dir() and entry.name != "__pycache__":
                folders.append((f"{path}/{entry.name}", entry))
            elif entry.name.endswith((".py", ".html", ".typed")):
                found.append((f"{path}/{entry.name}", entry.read_bytes()))
    return sorted(found)


def misfits(wanted: Fitness, found: Fitness) -> list[str]:
    """In what a node differs from the driver; none if it can run its tasks."""
    return [
        f"{label} is {getattr(found, field)}, expected {getattr(wanted, field)}"
        for field, label in FIELDS.items()
        if getattr(found, field) != getattr(wanted, field)
    ]
