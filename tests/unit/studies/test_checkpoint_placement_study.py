"""The study of where copies lie when load grows or swings."""

from resurge.connectors.paced import RowRange
from resurge.studies.checkpoint_placement import KEY_GROUPS, Cluster, means, next_move, rows_per_key_group, sweep, swinging
from resurge.studies.checkpoint_placement_report import Studied, findings, results_of, summary
from resurge.studies.flights import flights
from resurge.studies.swinging_load import ROWS_PER_S, Moved, SwingingReader, Swung, two_counts


def test_copies_placed_by_correlation_assist_every_move_when_load_swings() -> None:
    """They lie where load falls; evenly spread ones lie in part on a node that is full."""
    swung = swinging()
    assert swung["correlated"].assisted_share == 1.0 > swung["even"].assisted_share > 0.0


def test_copies_placed_by_correlation_assist_twice_as_many_moves_when_load_grows() -> None:
    """With every number of key groups; the summary says of each whether that holds."""
    found = means(list(sweep(3)))
    assert all(found[groups, "correlated"][0] >= 2 * found[groups, "even"][0] for groups in KEY_GROUPS)
    claims = findings(found, swinging())
    text = summary(found, swinging(), "heading")
    assert len(claims) == 5 and text.count("**Agrees**") == sum(agrees for agrees, _ in claims)


def test_key_groups_have_the_flights_of_their_airplanes() -> None:
    """All of them; other salts deal them out otherwise."""
    one, other = rows_per_key_group(16, 1), rows_per_key_group(16, 2)
    assert sum(one) == sum(other) == flights().get_column("plane").drop_nulls().len()
    assert one != other and len(one) == 16 and min(one) > 0


def test_a_key_group_goes_to_its_copy_if_there_is_room_and_else_to_the_emptiest_node() -> None:
    """Also one without a copy; nothing moves while no node is too full."""
    for copy, wanted in ((1, ("a/0", 1, True)), (0, ("a/0", 1, False)), (-1, ("a/0", 1, False))):
        cluster = Cluster({"a/0": 2, "b/0": 0}, {"a/0": copy, "b/0": -1}, (0.7, 0.0, 0.7))
        cluster.turn_to({"a/0": 0.2, "b/0": 0.0})
        assert next_move(cluster) == wanted
        cluster.turn_to({"a/0": 0.05, "b/0": 0.0})
        assert next_move(cluster) is None


def test_rows_swing_from_one_operator_to_the_other_one_percent_a_second() -> None:
    """None before, half of them halfway, all of them at the end; a row is the same whenever it is read."""
    reader = SwingingReader(20.0)
    shares = []
    for second in (10, 70, 125):
        first = int(second * ROWS_PER_S)
        rows = reader.rows(RowRange(first, first + 1_000, 0.0))
        assert rows.equals(reader.rows(RowRange(first, first + 1_000, 5.0)))
        shares.append(rows.get_column("operator").eq("second").mean())
    assert shares[0] == 0.0 and 0.45 < shares[1] < 0.55 and shares[2] == 1.0
    assert two_counts(20.0).operators.keys() >= {"first", "second"}


def test_the_summary_has_the_real_runs() -> None:
    """With whether correlated copies assisted every move, and twice as many as even ones."""
    results = list(sweep(1))
    copied, alone = Moved("second/0", 2, 1, 1, 1.0, 0.01), Moved("second/1", 2, 1, 0, 1.0, 0.02)
    real = [Swung("even", (copied, alone) * 4), Swung("correlated", (copied,) * 9)]
    text = summary(means(results), swinging(), "heading", real)
    assert "| correlated | 9 | 100% | 10 ms |" in text
    assert "**Agrees**: on a real cluster, correlated assists every move of 9 (here 100%)" in text
    assert results_of(Studied(results, swinging(), real))["swinging_real"][0]["assisted"] == 4
