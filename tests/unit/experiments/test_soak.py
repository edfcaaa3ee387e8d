"""A soak calls flat what is flat, and names what grows."""

from resurge.experiments import soak


def samples(value):
    """An hour of samples with one figure that is a function of time."""
    return [{"at_s": 10.0 * step, "driver/descriptors": value(10.0 * step)} for step in range(360)]


def test_a_series_that_breathes_is_flat():
    """Up and down by a few is no growth, nor is what happens in the first ten minutes."""
    assert soak.growing(samples(lambda at_s: min(at_s, 500) + at_s % 7)) == {}


def test_a_series_that_grows_slowly_is_named():
    """One descriptor a minute is a leak."""
    assert list(soak.growing(samples(lambda at_s: 50 + at_s / 60))) == ["driver/descriptors"]


def test_this_process_is_sampled_as_the_driver(tmp_path):
    """Its memory, descriptors and threads, and the files of the folders."""
    (tmp_path / "a").write_text("abc")
    found = soak.Watch({"store": tmp_path}).sample()
    assert found["driver/memory_bytes"] > 0 and found["driver/descriptors"] > 0 and found["driver/threads"] >= 1
    assert (found["store/files"], found["store/bytes"]) == (1, 3)
