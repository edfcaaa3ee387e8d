"""Schedules of a simulated world taken from traces of real machines: failures, repairs, and machines that come and go."""

import random
from pathlib import Path

from resurge.experiments.traces import repaired_failures, spot_changes
from resurge.simulator.faults import Arrive, Fault, KillNamed, Schedule


def lanl_schedule(path: Path, nodes: int, failures: int, until_s: float, rng: random.Random) -> Schedule:
    """Consecutive failures of a large cluster with their repairs, from a random point on, scaled into a time."""
    known = repaired_failures(path)
    first = rng.randrange(max(1, len(known) - failures))
    taken = known[first : first + failures]
    begins_s = taken[0].at_s
    scale = until_s / max(1.0, taken[-1].at_s - begins_s)
    # Many nodes of the real cluster share one of ours; each failure brings a machine of its own back.
    labels = {name: f"n{number % nodes}" for number, name in enumerate(dict.fromkeys(failure.node for failure in taken))}
    faults: list[Fault] = []
    for failure in taken:
        back_s = failure.at_s if failure.repaired_s is None else failure.repaired_s
        faults.append(KillNamed((failure.at_s - begins_s) * scale, labels[failure.node]))
        faults.append(Arrive(min((back_s - begins_s) * scale, until_s)))
    return Schedule.of(faults)


def spot_schedule(path: Path, until_s: float, most_nodes: int) -> Schedule:
    """Machines added to and taken from a spot cluster, scaled into a time; labels beyond the first few are left out."""
    changes = spot_changes(path)
    labels = list(dict.fromkeys(change.node for change in changes))[:most_nodes]
    kept = [change for change in changes if change.node in labels]
    begins_s, ends_s = kept[0].at_s, kept[-1].at_s
    scale = until_s / max(1.0, ends_s - begins_s)
    faults: list[Fault] = []
    for change in kept:
        at_s = (change.at_s - begins_s) * scale
        faults.append(Arrive(at_s, change.node) if change.is_added else KillNamed(at_s, change.node))
    return Schedule.of(faults)
