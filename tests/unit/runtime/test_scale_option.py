"""--scale: what is refused, in one line, before anything is started."""

import pytest

from resurge.errors import JobError
from resurge.runtime.driver.engine import Engine
from resurge.runtime.driver.options import RunOptions, scale_bounds
from resurge.runtime.embedded_cluster.runner import refuse_scale
from resurge.testing.inline_runner import InlineRunner
from tests.support import crash_job


@pytest.mark.parametrize("text", ["", "4", "0..2", "3..2", "a..b", "2-4", "2..", "..4", "-1..3", "1...3", "2..8 nodes"])
def test_bounds_that_are_none_are_refused_in_one_line(text):
    """The line says what came and what was expected."""
    with pytest.raises(JobError, match=r"expected MIN\.\.MAX, from at least 1 node to no fewer, such as 2\.\.8") as refused:
        RunOptions(scale=text)
    assert repr(text) in str(refused.value) and "\n" not in str(refused.value)


def test_bounds_are_read():
    """Also both the same: then nodes are only replaced."""
    assert (scale_bounds("2..8").least, scale_bounds(" 3..3 ").most) == (2, 3)
    assert scale_bounds(None) is None


def test_a_single_machine_cannot_scale():
    """Told before Spark is started."""
    with pytest.raises(JobError, match=r"--scale needs a cluster, and local\[2\] has one node only; leave it out"):
        refuse_scale("local[2]", RunOptions(scale="1..2"))
    refuse_scale("local[2]", RunOptions())
    refuse_scale("yarn", RunOptions(scale="1..2"))


def test_an_engine_that_is_to_scale_needs_somebody_who_does(tmp_path):
    """Rather than to ask nobody for nodes for ever."""
    crash_job.write_input(tmp_path, epochs=1)
    with pytest.raises(JobError, match="give the engine a scaler"):
        Engine(crash_job.topology(tmp_path), InlineRunner(2), RunOptions(scale="1..2"))
