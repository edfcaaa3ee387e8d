"""A soak calls flat what is flat, and names what grows."""

import random
import subprocess
import sys
import time

import pytest

from resurge.errors import JobError
from resurge.experiments import soak
from resurge.experiments.soak_judgement import MIB, judged, noticed_per_hour, warm_up_s

LEAKY = """
import sys, threading, time
kept = []
print("ready", flush=True)
while True:
    kept.append(open("/dev/null"))
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    kept.append(bytearray(3_000_000))
    time.sleep(0.03)
"""


def samples(name, value, hours=1.0):
    """Samples with one figure that is a function of time."""
    return [{"at_s": 10.0 * step, name: value(10.0 * step)} for step in range(int(hours * 360))]


def grown(name, value, hours=1.0):
    """What is said to have grown."""
    return [name for name, ends in judged(samples(name, value, hours), warm_up_s(hours)).items() if ends.has_grown]


def breathing(rng, low, high):
    """A figure that goes up and down, as memory does between two collections."""
    return lambda at_s: rng.uniform(low, high)


@pytest.mark.parametrize("hours", [0.1, 1.0])
def test_a_series_that_breathes_is_flat(hours):
    """Up and down is no growth, nor is what happens in the warm-up."""
    rng = random.Random(3)
    warm = warm_up_s(hours)
    assert grown("driver/descriptors", lambda at_s: min(at_s, warm) + at_s % 7, hours) == []
    assert grown("driver/threads", breathing(rng, 40, 44), hours) == []
    assert grown("driver/memory_bytes", breathing(rng, 300 * MIB, 420 * MIB), hours) == []
    assert grown("executor JVM/memory_bytes", breathing(rng, 400 * MIB, 450 * MIB), hours) == []
    assert grown("journal/files", lambda at_s: 10 + at_s / 2 % 20, hours) == []


# What leaks in a minute, of a figure that breathes around a level.
LEAKS = {
    "driver/descriptors": (120, 8, 1),
    "Python worker/descriptors": (40, 4, 0.5),
    "driver/threads": (45, 3, 0.5),
    "executor JVM/threads": (60, 5, 0.5),
    "driver/memory_bytes": (350 * MIB, 60 * MIB, 2.5 * MIB),
    "driver JVM/memory_bytes": (500 * MIB, 200 * MIB, 6 * MIB),
    "Python worker/processes": (6, 2, 0.25),
    "durable store/files": (300, 30, 3),
    "telemetry/bytes": (20 * MIB, 1 * MIB, 0.5 * MIB),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_small_leak_is_noticed_in_an_hour(name):
    """Though the figure breathes."""
    level, breath, per_minute = LEAKS[name]
    rng = random.Random(name)
    assert grown(name, lambda at_s: level + rng.uniform(0, breath) + per_minute * at_s / 60) == [name]


def test_a_shorter_run_notices_larger_leaks_only_and_says_so():
    """Six minutes are too short for a descriptor a minute, and enough for a dozen."""
    assert grown("driver/descriptors", lambda at_s: 100 + at_s / 60, 0.1) == []
    assert grown("driver/descriptors", lambda at_s: 100 + at_s / 5, 0.1) == ["driver/descriptors"]
    for hours, per_hour in ((0.1, 13 / 0.039), (1.0, 13 / 0.63)):
        taken = samples("driver/descriptors", lambda at_s: 100, hours)
        ends = judged(taken, warm_up_s(hours))
        assert noticed_per_hour(ends, taken, warm_up_s(hours))["driver/descriptors"] == pytest.approx(per_hour, rel=0.1)


def test_a_run_that_is_too_short_is_not_called_flat():
    """Without samples nothing can be said."""
    with pytest.raises(JobError, match="says nothing"):
        soak.verdict(samples("driver/threads", lambda at_s: 5, 0.01), 0.0)


def test_this_process_is_sampled_as_the_driver(tmp_path):
    """Its memory, descriptors and threads, and the files of the folders."""
    (tmp_path / "a").write_text("abc")
    found = soak.Watch({"store": tmp_path}).sample()
    assert found["driver/memory_bytes"] > 0 and found["driver/descriptors"] > 0 and found["driver/threads"] >= 1
    assert (found["store/files"], found["store/bytes"]) == (1, 3)


def test_a_real_process_that_leaks_is_named(monkeypatch):
    """Descriptors, threads and memory of a process that keeps them all; its command line says what it is."""
    command = [sys.executable, "-c", LEAKY, "resurge.runtime.worker.daemon"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as leaky:
        try:
            assert leaky.stdout.readline()
            watch = soak.Watch({})
            for _ in range(24):
                watch.samples.append(watch.sample())
                time.sleep(0.05)
        finally:
            leaky.kill()
    ends = judged(watch.samples, 0.0)
    assert {name for name, found in ends.items() if found.has_grown} >= {
        f"Python worker/{figure}" for figure in ("descriptors", "threads", "memory_bytes")
    }


def test_one_node_lives_to_the_end():
    """Whatever is killed, and however many there are."""
    rng = random.Random(1)
    for alive in (["node-1", "node-2", "node-3"], ["node-1", "node-4"], ["node-1"], [f"node-{n}" for n in range(1, 8)]):
        for count in (1, 2):
            chosen = soak.victims(alive, count, rng)
            assert soak.SURVIVOR not in chosen
            assert len(alive) - len(chosen) <= soak.NODES
