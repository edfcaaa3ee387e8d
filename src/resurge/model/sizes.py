"""Amounts of memory or disk as people write them."""

import re

from resurge.errors import ResurgeError

UNITS_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def size_bytes(text: str) -> int:
    """Bytes of a size such as 700m or 2g; a plain number is in bytes.

    >>> size_bytes("2g"), size_bytes("64 MB"), size_bytes("0")
    (2147483648, 67108864, 0)
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise ResurgeError(f"{text!r} is not a size; expected a number with a unit, such as 700m or 2g")
    return int(found[1]) * UNITS_BYTES[found[2]]
