"""What a compiled topology knows of itself."""

from resurge.connectors.posts import posts
from resurge.connectors.sinks import DiscardSink
from resurge.experiments.hashtags import hashtags
from resurge.operators.program import compile_topology


def test_only_windows_read_the_source() -> None:
    """What maintains their counts follows them, so that nobody reads input again for it."""
    job = hashtags(posts(10.0), key_groups=2, make_sink=lambda name: DiscardSink())
    program = compile_topology(job.topology, chained=False)
    reading = [operator for operator in program.partitioned_operators() if program.reads_sources(operator)]
    assert reading == ["O1", "O2", "O3", "O4"]
