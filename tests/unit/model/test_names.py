"""What partitions and query partitions are called."""

import pytest

from resurge.errors import TopologyError
from resurge.model.names import KeyGroup, Partition, query_of, query_partition


def test_a_partition_reads_back_what_it_writes() -> None:
    """One parser and one formatter: what is written in the journal and in telemetry names the same partition."""
    for partition in (Partition("counts", KeyGroup(0)), Partition("a-b_c", KeyGroup(4095))):
        assert Partition.parse(str(partition)) == partition


@pytest.mark.parametrize("name", ["", "counts", "/3", "counts/", "counts/x", "counts/-1"])
def test_what_is_no_partition_is_refused(name: str) -> None:
    """A name without an operator or a key group is refused, with an example of what was expected."""
    with pytest.raises(TopologyError, match="such as 'counts/3'"):
        Partition.parse(name)


def test_a_query_partition_names_its_query() -> None:
    """What a query partition is called leads back to its query."""
    assert query_of(query_partition("top", 12)) == "top"
