"""The drawing of a topology: layers, few crossings, crowds as one box."""

from hypothesis import given
from hypothesis import strategies as st

from resurge.dashboard.layout import BOX_HEIGHT, BOX_WIDTH, drawn
from resurge.telemetry.events import OperatorDescription


def described(streams: dict[str, list[str]]) -> dict[str, OperatorDescription]:
    """Operators by what they read, upstream first."""
    return {name: OperatorDescription("Window", inputs, True) for name, inputs in streams.items()}


def test_operators_stand_to_the_right_of_what_they_read():
    """A reader follows streams from left to right."""
    drawing = drawn(described({"a": [], "b": ["a"], "c": ["a", "b"]}), {"q": "c"})
    x = {box.id: box.x for box in drawing.boxes}
    assert x["a"] < x["b"] < x["c"]
    assert {box.id: box.queries for box in drawing.boxes}["c"] == ("q",)


def test_two_chains_do_not_cross():
    """Each chain stays on its own row."""
    drawing = drawn(described({"a": [], "z": [], "after-z": ["z"], "before": ["a"]}), {})
    y = {box.id: box.y for box in drawing.boxes}
    assert (y["a"] < y["z"]) == (y["before"] < y["after-z"])


def test_many_alike_are_one_box_and_few_are_not():
    """15 windows over one stream are drawn one by one, 500 as one."""
    for count, boxes in ((15, 16), (500, 2)):
        streams = {"source": [], **{f"w{number}": ["source"] for number in range(count)}}
        drawing = drawn(described(streams), {})
        assert len(drawing.boxes) == boxes
        assert sum(len(box.operators) for box in drawing.boxes) == count + 1


@given(st.lists(st.lists(st.integers(0, 60), max_size=3), min_size=1, max_size=60))
def test_every_operator_has_a_place_of_its_own(inputs):
    """No box covers another, none is outside, every stream joins two boxes from left to right."""
    streams = {f"o{number}": [f"o{other}" for other in sorted(set(read)) if other < number] for number, read in enumerate(inputs)}
    drawing = drawn(described(streams), {})
    assert sorted(name for box in drawing.boxes for name in box.operators) == sorted(streams)
    assert len({(box.x, box.y) for box in drawing.boxes}) == len(drawing.boxes)
    x = {box.id: box.x for box in drawing.boxes}
    for box in drawing.boxes:
        assert 0 <= box.x <= drawing.width - BOX_WIDTH
        assert 0 <= box.y <= drawing.height - BOX_HEIGHT
    assert all(x[upstream] < x[reader] for upstream, reader in drawing.streams)
