"""How often the driver calls into the JVM must not depend on the square of the number of slots."""

from resurge.benchmarks.slots import measure


def test_calls_grow_no_faster_than_slots() -> None:
    """For a new set of nodes at most in proportion; for a job on nodes that are known, not at all."""
    few, many = measure([2, 8], 2, lambda text: None)["results"]
    assert few["calls_per_job"] == many["calls_per_job"] < 20
    assert many["calls_for_new_nodes"] <= few["calls_for_new_nodes"] + 4 * (8 - 2)
