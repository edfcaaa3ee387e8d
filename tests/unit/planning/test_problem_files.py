"""Reading problem files: what is decoded, and how each kind of bad input is refused in one line."""

import gzip
import json
from pathlib import Path

import pytest

from resurge.errors import ProblemError
from resurge.planning import problem_files


def test_plain_and_gzipped_files_are_read_alike(tmp_path: Path) -> None:
    """A gzipped problem is recognised by its content, whatever its name."""
    plain, packed = tmp_path / "plain.json", tmp_path / "packed.json"
    plain.write_text(json.dumps({"capacity": 1}), encoding="utf-8")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert problem_files.load(plain) == problem_files.load(packed) == {"capacity": 1}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{not json", "is not JSON"),
        (b"", "is not JSON"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"\x1f\x8bbroken", "damaged gzip"),
        (gzip.compress(b"{}" * 100, mtime=0)[:-12], "damaged gzip"),
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too many digits"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_problem_is_refused_in_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    """Whatever is in the file, the refusal is a ProblemError of one line."""
    path = tmp_path / "problem.json"
    path.write_bytes(content)
    with pytest.raises(ProblemError, match=complaint) as refused:
        problem_files.load(path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing file and a directory are refused by name."""
    with pytest.raises(ProblemError, match=r"no such problem file: .*absent\.json"):
        problem_files.load(tmp_path / "absent.json")
    with pytest.raises(ProblemError, match="cannot read problem file"):
        problem_files.load(tmp_path)


def test_a_misspelt_field_gets_the_nearest_name() -> None:
    """An unknown field is answered with the field it may have meant."""
    with pytest.raises(ProblemError, match=r"unknown field 'capasity'; did you mean 'capacity'\?"):
        problem_files.require_fields({"capasity": 1}, ["capacity"])
    with pytest.raises(ProblemError, match="has no field 'capacity'"):
        problem_files.require_fields({}, ["capacity"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 1e16, 10**400, True, "7", None, [1]])
def test_only_finite_non_negative_numbers_of_sane_size_are_costs(value: object) -> None:
    """NaN, infinities, negatives, giants and other types are refused, with the field's name."""
    with pytest.raises(ProblemError, match=r"partitions\['p'\] must be"):
        problem_files.finite_non_negative(value, "partitions['p']")
