"""Read a problem file and check its values: every refusal is one line that names the field.

The same checks serve the problem classes, so a problem built in Python is validated as one read from a file.
"""

import difflib
import gzip
import json
import math
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from resurge.errors import ProblemError

LARGEST_NUMBER = 1e15
"""Sums of numbers up to this stay exact enough in 64-bit floats and integers; nobody measures a cost beyond it."""

_GZIP_MAGIC = b"\x1f\x8b"
_SHOWN_CHARACTERS = 60


def load(path: Path) -> Any:
    """Decode a JSON file, gzipped or not; refuse names that appear twice in one object.

    NaN and infinities are decoded, so that the check of their field can refuse them by name.
    """
    text = read_text(path, "problem file", "JSON")
    try:
        return json.loads(text, object_pairs_hook=_object_without_duplicates, parse_constant=float)
    except json.JSONDecodeError as error:
        raise ProblemError(
            f"problem file {str(path)!r} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise ProblemError(f"problem file {str(path)!r} is nested too deeply for a problem") from None
    except ValueError:
        raise ProblemError(f"problem file {str(path)!r} has a number with too many digits") from None


def read_text(path: Path, kind: str, language: str) -> str:
    """The text of a file of this kind, gzipped or not; the refusals say what was expected."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ProblemError(f"no such {kind}: {str(path)!r}; give the path of a {language} file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ProblemError(f"cannot read {kind} {str(path)!r}: {reason}") from None
    try:
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error):
        raise ProblemError(f"{kind} {str(path)!r} is a damaged gzip file; write it again") from None
    except UnicodeDecodeError:
        raise ProblemError(f"{kind} {str(path)!r} is not {language}: it is not UTF-8 text") from None


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    decoded = dict(pairs)
    if len(decoded) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ProblemError(f"the name {name!r} appears twice in one JSON object; give it once")
            seen.add(name)
    return decoded


def shown(value: object) -> str:
    """Show a refused value on one line, shortened; a huge integer is never spelled out."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**_SHOWN_CHARACTERS:
        return "an integer of more than 60 digits"
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name the given one may have meant, as the end of a sentence, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def as_object(value: object, field: str) -> Mapping[str, Any]:
    """Accept a JSON object (a mapping with text keys)."""
    if not isinstance(value, Mapping):
        raise ProblemError(f"{field} must be an object of names and values, got {shown(value)}")
    for name in value:
        if not isinstance(name, str):
            raise ProblemError(f"{field} must have names that are text, got {shown(name)}")
    return value


def as_list(value: object, field: str) -> Sequence[Any]:
    """Accept a JSON list (a list or a tuple)."""
    if not isinstance(value, list | tuple):
        raise ProblemError(f"{field} must be a list, got {shown(value)}")
    return value


def as_name(value: object, field: str) -> str:
    """Accept a piece of text that names something."""
    if not isinstance(value, str):
        raise ProblemError(f"{field} must be a name (text), got {shown(value)}")
    return value


def require_fields(
    mapping: Mapping[str, object], required: Collection[str], optional: Collection[str] = (), where: str = "the problem"
) -> None:
    """Refuse a missing field and an unknown one, suggesting the nearest name for a misspelt one."""
    known = [*required, *optional]
    unknown = [name for name in mapping if name not in known]
    if unknown:
        raise ProblemError(
            f"{where} has an unknown field {shown(unknown[0])}{nearest(str(unknown[0]), known)} (expected {', '.join(known)})"
        )
    missing = [name for name in required if name not in mapping]
    if missing:
        raise ProblemError(f"{where} has no field {missing[0]!r}; expected {', '.join(known)}")


def finite(value: object, field: str) -> int | float:
    """Accept a finite number of sane size; True and False are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProblemError(f"{field} must be a number, got {shown(value)}")
    if isinstance(value, float) and math.isnan(value):
        raise ProblemError(f"{field} must be a number, got NaN")
    if abs(value) > LARGEST_NUMBER:
        raise ProblemError(f"{field} must be at most {LARGEST_NUMBER:g} in size, got {shown(value)}")
    return value


def finite_non_negative(value: object, field: str) -> int | float:
    """Accept a finite number that is at least 0."""
    number = finite(value, field)
    if number < 0:
        raise ProblemError(f"{field} must be at least 0, got {shown(number)}")
    return number


def finite_positive(value: object, field: str) -> int | float:
    """Accept a finite number above 0."""
    number = finite(value, field)
    if number <= 0:
        raise ProblemError(f"{field} must be more than 0, got {shown(number)}")
    return number


def whole(value: object, field: str, at_least: int) -> int:
    """Accept an integer that is at least `at_least`; 2.0 is not an integer here."""
    number = finite(value, field)
    if not isinstance(number, int) or number < at_least:
        raise ProblemError(f"{field} must be an integer of at least {at_least}, got {shown(value)}")
    return number


def known_name(name: object, known: Collection[str], field: str, kind: str) -> str:
    """Accept a name that the problem defines, such as a partition that a query lists."""
    text = as_name(name, field)
    if text not in known:
        raise ProblemError(f"{field} names an unknown {kind} {shown(text)}{_nearest_of_few(text, known)}")
    return text


def _nearest_of_few(name: str, known: Collection[str]) -> str:
    # Comparing with tens of thousands of names would take seconds and help nobody.
    return nearest(name, known) if len(known) <= 2000 else ""
