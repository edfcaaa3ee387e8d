"""When a run of the study has been watched for long enough."""

from types import SimpleNamespace

from resurge.studies.correlated_failure import Watch
from resurge.telemetry.events import EpochFinished, NodesKilled


class Stopped:
    """Counts how often it was asked to stop; whole or not, as told."""

    def __init__(self) -> None:
        self.stops = 0
        self.recovery = SimpleNamespace(all_live=True)

    def stop(self) -> None:
        self.stops += 1


def epoch(at_s: float, latency_s: float) -> EpochFinished:
    """An epoch with this latency."""
    return EpochFinished(at_s, 1, 0, 0.0, at_s - latency_s, {}, {}, 0, 0, {}, 0, 0, None, {})


def test_a_run_ends_when_latency_has_been_normal_for_some_epochs_in_a_row() -> None:
    """Not before all kills, not while something is down, not while latency is 1.2 times normal or more."""
    engine = Stopped()
    watch = Watch(engine, kill=2, length_s=60.0, settled_epochs=2)  # type: ignore[arg-type]
    for moment in range(3):
        watch.listen(epoch(moment, 5.0))
    watch.listen(NodesKilled(4.0, ["n1"]))
    watch.listen(epoch(5.0, 5.0))
    watch.listen(epoch(6.0, 5.0))
    assert engine.stops == 0, "one node is still to die"
    watch.listen(NodesKilled(7.0, ["n2"]))
    watch.listen(epoch(8.0, 5.0))
    watch.listen(epoch(9.0, 6.1))
    engine.recovery.all_live = False
    watch.listen(epoch(10.0, 5.0))
    engine.recovery.all_live = True
    watch.listen(epoch(11.0, 5.9))
    assert engine.stops == 0
    watch.listen(epoch(12.0, 5.9))
    assert engine.stops == 1
    watch.end()
    assert watch.timer is not None
    watch.timer.join(5.0)
    assert not watch.timer.is_alive()
