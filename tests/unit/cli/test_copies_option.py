"""`--copies`: how many copies of each state, of all operators and of some."""

import pytest

from resurge.cli.run import copies_of
from resurge.errors import JobError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("many", "--copies has 'many'; expected a number"),
        ("1,totals=-1", "--copies has 'totals=-1'; expected a number"),
        ("1,2", "--copies has two numbers for all operators"),
        ("totals=1,totals=2", "--copies has two numbers for totals"),
    ],
)
def test_a_wrong_number_of_copies_is_refused_in_one_line(text: str, words: str) -> None:
    """What was given, and what is expected."""
    with pytest.raises(JobError, match=words) as refused:
        copies_of(text)
    assert "\n" not in str(refused.value)
