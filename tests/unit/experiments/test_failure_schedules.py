"""What a seed of chaos stands for: always the same, always within the run, and as the traces tell it."""

import json
import shlex
from pathlib import Path

import pytest

from resurge.cli import chaos as command
from resurge.cli import main
from resurge.errors import ProblemError
from resurge.experiments.chaos import EPOCHS, Verdict
from resurge.experiments.failure_schedules import FailureSchedules
from resurge.experiments.traces import Failure
from resurge.testing.fault_injection import Strike

NODES = 4
SEEDS = range(200)
TOGETHER = [Failure("a", 0.0), Failure("b", 0.0), Failure("c", 60.0)]
APART = [Failure(str(number), 60.0 * number) for number in range(NODES)]


def in_run_s(strike: Strike) -> float:
    """When a strike happens, if every epoch takes a second."""
    return strike.epoch + strike.delay_s


@pytest.mark.parametrize(
    "schedules",
    [
        FailureSchedules(EPOCHS, NODES),
        FailureSchedules(EPOCHS, NODES, arrivals_s=[20.0, 40.0, 1200.0]),
        FailureSchedules(EPOCHS, NODES, [TOGETHER, APART]),
        FailureSchedules(EPOCHS, NODES, [TOGETHER, APART], [20.0, 40.0, 1200.0]),
    ],
    ids=["random", "arrivals", "trace", "trace and arrivals"],
)
def test_every_schedule_repeats_falls_into_the_run_and_replaces_what_it_kills(schedules):
    """Whatever the seed, and whether or not there are traces."""
    for seed in SEEDS:
        strikes = schedules.strikes(seed)
        assert strikes == schedules.strikes(seed)
        for strike in strikes:
            assert 1 <= strike.epoch <= EPOCHS - 2 and 0 <= strike.delay_s <= 1.5
            assert 1 <= strike.nodes <= NODES and len(strike.add_after_s) == strike.nodes
            assert all(0 <= wait_s <= EPOCHS for wait_s in strike.add_after_s)
    assert len({str(schedules.strikes(seed)) for seed in SEEDS}) > len(SEEDS) / 2


def test_a_seed_without_traces_means_what_it_always_meant():
    """Seeds that failed are kept for ever, so what they stand for must not change."""
    first = FailureSchedules(EPOCHS, NODES).strikes(2)
    assert [(strike.epoch, strike.nodes) for strike in first] == [(2, 1)]
    assert first[0].delay_s == pytest.approx(0.5415862109754108)
    assert first[0].add_after_s == (pytest.approx(0.6763344626417749),)


def test_nodes_that_failed_in_one_minute_die_at_once_and_the_next_one_after_them():
    """One minute becomes five seconds: what was close together stays close together."""
    for seed in SEEDS:
        first, second = FailureSchedules(EPOCHS, NODES, [TOGETHER]).strikes(seed)
        assert (first.nodes, second.nodes) == (2, 1)
        assert in_run_s(second) - in_run_s(first) == pytest.approx(5.0)


def test_a_burst_kills_at_most_as_many_nodes_as_there_are(tmp_path):
    """Of a larger one a part is taken, from a point that the seed chooses."""
    path = tmp_path / "spot.csv"
    path.write_text("".join(f"{30_000 * number},remove,node{number}\n" for number in range(40)))
    schedules = FailureSchedules.read(EPOCHS, NODES, path)
    assert {sum(strike.nodes for strike in schedules.strikes(seed)) for seed in SEEDS} == {2, 3, NODES}


def test_failures_and_start_up_times_are_scaled_alike():
    """A machine that was replaced before the next one failed is replaced before it here too."""
    failures = [Failure("a", 0.0), Failure("b", 300.0)]
    for seed in SEEDS:
        first, second = FailureSchedules(EPOCHS, NODES, [failures], [100.0]).strikes(seed)
        apart_s = in_run_s(second) - in_run_s(first)
        assert apart_s == pytest.approx(6.0)
        assert first.add_after_s == (pytest.approx(apart_s / 3),)


def test_traces_are_read_from_files(tmp_path):
    """Both formats of failures, and start-up times."""
    spot, arrivals = tmp_path / "spot.csv", tmp_path / "arrivals.csv"
    spot.write_text("0,add,a\n0,add,b\n60000,remove,a\n60000,remove,b\n")
    arrivals.write_text("type,seconds\nsmall,60\n")
    (strike,) = FailureSchedules.read(EPOCHS, NODES, spot, arrivals).strikes(1)
    assert (strike.nodes, strike.add_after_s) == (2, (5.0, 5.0))


def test_a_trace_in_which_nodes_fail_one_by_one_is_refused(tmp_path):
    """There is no burst to choose."""
    path = tmp_path / "spot.csv"
    path.write_text("60000,remove,a\n6000000,remove,b\n")
    with pytest.raises(ProblemError, match="no two nodes that fail within 60 seconds of one another"):
        FailureSchedules.read(EPOCHS, NODES, path)


@pytest.mark.parametrize("option", ["--trace", "--arrivals"])
def test_a_bad_file_ends_the_command_with_one_line_and_exit_code_2(option, tmp_path, monkeypatch, capsys):
    """Before a cluster is started."""
    path = tmp_path / "bad.csv"
    path.write_text("nonsense\n")
    monkeypatch.setattr("sys.argv", ["resurge", "chaos", option, str(path)])
    with pytest.raises(SystemExit) as ended:
        main.run()
    told = capsys.readouterr().err.splitlines()
    assert (ended.value.code, len(told)) == (2, 1)
    assert "bad.csv" in told[0]


def test_the_command_that_repeats_a_seed_names_the_files():
    """Without them the same seed would be another failure."""
    told = command.repeating(7, 4, "eager", Path("my failures.csv"), Path("arrivals.csv"))
    options = ["--seed", "7", "--nodes", "4", "--strategy", "eager", "--trace", "my failures.csv", "--arrivals", "arrivals.csv"]
    assert shlex.split(told) == ["resurge", "chaos", *options]


def test_a_verdict_is_written_as_json_with_the_seconds_it_took():
    """So that many seeds can be compared."""
    written = json.dumps(Verdict(3, 2, 0, 0, 12.345).to_json())
    assert json.loads(written) == {"seed": 3, "kills": 2, "disturbed": 0, "lost": 0, "duplicated": 0, "took_s": 12.3}


def test_faults_other_than_kills_last_for_a_while_and_replace_nobody():
    """Links are cut and processes stopped for some seconds; a cut of no node is one of the driver."""
    schedules = FailureSchedules(EPOCHS, NODES, faults=("cut", "hang"))
    strikes = [strike for seed in range(40) for strike in schedules.strikes(seed)]
    assert {strike.fault for strike in strikes} == {"cut", "hang"}
    assert all(strike.lasts_s > 0 and not strike.add_after_s for strike in strikes)
    assert {strike.nodes for strike in strikes if strike.fault == "cut"} == {0, 1, NODES // 2}
    assert 0 not in {strike.nodes for strike in strikes if strike.fault == "hang"}


def test_a_fault_that_there_is_not_is_refused_in_one_line(monkeypatch, capsys):
    """Before a cluster is started."""
    monkeypatch.setattr("sys.argv", ["resurge", "chaos", "--faults", "kill,flood"])
    with pytest.raises(SystemExit):
        main.run()
    assert "expected some of kill, cut, hang" in capsys.readouterr().err
