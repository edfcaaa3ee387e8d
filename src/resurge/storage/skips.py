"""Files that the user has chosen to skip: recorded once, for the life of the job."""

import msgspec

from resurge.errors import CorruptFileError
from resurge.storage import paths
from resurge.storage.durable import DurableStore


class Skip(msgspec.Struct, frozen=True):
    """Whatever was not read of a file before is never read."""

    source: str
    file: str
    at_s: float


def read_skips(store: DurableStore) -> list[Skip]:
    """All recorded skips, oldest first."""
    return [skip for _, skip in _numbered(store)]


def record_skip(store: DurableStore, skip: Skip) -> bool:
    """Record a skip durably; False if the file was skipped before."""
    while True:
        known = _numbered(store)
        if any((skip.source, skip.file) == (other.source, other.file) for _, other in known):
            return False
        number = max((number for number, _ in known), default=0) + 1
        if store.create(paths.skip(number), msgspec.json.encode(skip)):
            return True


def _numbered(store: DurableStore) -> list[tuple[int, Skip]]:
    found = []
    for name in store.names(paths.SKIPS):
        number = paths.number_of(name)
        if number is None:
            continue
        try:
            found.append((number, msgspec.json.decode(store.read(name), type=Skip)))
        except msgspec.DecodeError as error:
            raise CorruptFileError(
                f"{store.path(name)} cannot be read ({error}); expected the record of a skipped file: restore it from a copy, or "
                "remove it and skip the file again"
            ) from error
    return sorted(found, key=lambda pair: pair[0])
