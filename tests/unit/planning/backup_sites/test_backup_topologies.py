"""The paper's topologies and real ones, and the words of the study."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from resurge.planning.backup_sites import ALGORITHMS, BackupProblem
from resurge.studies.backup_sites_report import Measurement, excess_percent, summary
from resurge.studies.backup_topologies import cases, topologies, twitter_sentiment
from tests.support.backup_topologies import recovery_latency
from tests.support.generated import application_graph
from tests.support.real_data import real


def test_topologies_have_the_sizes_that_the_paper_gives():
    """93 tasks with 560 and 1,050 edges; 55 tasks on paths of nine steps."""
    by_name = {topology.name: topology for topology in topologies(random.Random(1))}
    assert len(by_name["sentiment-560"].tasks) == len(by_name["sentiment-1050"].tasks) == 93
    assert [len(by_name[f"sentiment-{edges}"].edges) for edges in (560, 1050)] == [560, 1050]
    signal = by_name["traffic-signal"]
    plan = ALGORITHMS["dag"](BackupProblem(dict.fromkeys(signal.tasks, 1), signal.edges, 9))
    assert len(signal.tasks) == 55 and plan.worst == 9 and plan.backups == ()


@pytest.mark.parametrize("bound", [10, 14, 20, 30])
def test_dag_is_close_to_exact_on_the_papers_topologies(bound: int):
    """On Twitter sentiment with times 1 to 10, at most a tenth more backups than the proven optimum."""
    chance = random.Random(bound)
    edges = twitter_sentiment(30, 30, 30)
    tasks = {name: chance.randint(1, 10) for name in dict.fromkeys(name for edge in edges for name in edge)}
    problem = BackupProblem(tasks, edges, bound)
    exact, dag = ALGORITHMS["exact"](problem), ALGORITHMS["dag"](problem)
    assert exact.optimal and dag.cost <= 1.1 * exact.cost
    assert max(recovery_latency(tasks, edges, dag.backups).values()) <= bound


def test_study_repeats_exactly_for_the_same_seed():
    """The seed decides the tree and every drawn time."""
    first, second, other = (list(cases(seed, 1)) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_summary_says_in_words_where_it_agrees():
    """The words follow from the measurements."""
    names = [topology.name for topology in topologies(random.Random(1))]
    backups = {"exact": 10, "auto": 10, "dag": 11, "share-based": 13}
    measurements = [
        Measurement(name, weights, 0, bound, algorithm, count, 1.0, None)
        for name in names
        for weights in ("uniform", "1 to 10")
        for bound in (2.0, 9.0)
        for algorithm, count in backups.items()
    ]
    text = summary(measurements, seed=1, draws=1)
    assert excess_percent(measurements, names, "uniform", "dag") == pytest.approx(10)
    assert "ours exceeds it by 0.0 % at most. We agree." in text
    assert (
        "Traffic signal, uniform times: the heuristic exceeds the optimum by 10.0 % on average, the paper's by 3 %: we do not agree."
        in text
    )


def applications(path: Path | None) -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Operator graphs of a file of streaming applications, or generated ones of the same size."""
    if path is None:
        yield from (application_graph(seed) for seed in range(16))
        return
    for application in json.loads(path.read_text()):
        edges = list(dict.fromkeys((edge["from"], edge["to"]) for edge in application["edges"]))
        yield [node["id"] for node in application["nodes"]], edges


@pytest.mark.parametrize("collection", [None, *real("topologies/dspbench.json")])
def test_graphs_of_streaming_applications_need_no_more_than_exact(collection: Path | None):
    """`auto` finds the optimum."""
    for names, edges in applications(collection):
        problem = BackupProblem({name: 1 + index % 4 for index, name in enumerate(names)}, edges, 5)
        assert ALGORITHMS["auto"](problem).cost == ALGORITHMS["exact"](problem).cost, names
