"""A Spark session in this process for the modules that run jobs on it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resurge.model.topology import Topology
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions

RunOnSpark = Callable[[Topology, Path], None]


@pytest.fixture(scope="module")
def run_on_spark() -> Iterator[RunOnSpark]:
    """Run a topology to the end of its input on two cores; one session per module, so that none is left to the next.

    Small epochs run in one slot and in both by turns: every test has jobs with a shuffle and without one.
    """
    from resurge.runtime.driver.session import open_session
    from resurge.runtime.driver.spark_runner import SparkRunner

    class GatheringRunner(SparkRunner):
        gathers = False

        @property
        def has_costly_slots(self) -> bool:  # type: ignore[override]
            self.gathers = not self.gathers
            return self.gathers

    spark = open_session("local[2]")

    def run(topology: Topology, folder: Path) -> None:
        options = RunOptions(str(folder / "job"), interval_s=0, checkpoint_interval=3, local_root=str(folder))
        run_until_done(Engine(topology, GatheringRunner(spark), options), until_idle=True, drain=True)

    yield run
    spark.stop()
