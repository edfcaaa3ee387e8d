"""What the dashboard knows of a job, folded from telemetry; no browser, no server."""

import pytest

from resurge.dashboard.model import JobState
from resurge.dashboard.view import history_view, incident_view, node_view, now_view, operator_view, query_view, topology_view
from resurge.studies.failure_cases import FailureCase
from resurge.studies.simulated_failure import simulated_study
from resurge.telemetry import events
from tests.support.large_job import KEY_GROUPS, large_job
from tests.support.telemetry import START_S, checkpoint, described, epoch, started, steady_run


def folded(told) -> JobState:
    """The state after these events."""
    job = JobState()
    for event in told:
        job.take(event)
    return job


def now(job: JobState, at_s: float | None = None, *, is_live: bool = False):
    """What the page would show."""
    return now_view(job, job.last_s if at_s is None else at_s, None, is_live=is_live)


@pytest.fixture(scope="module")
def failure() -> list[events.Event]:
    """Four of six nodes die in virtual time, and replacements come one by one."""
    case = FailureCase("incremental", "incremental", 4, (10.0, 20.0, 30.0, 40.0))
    [(_, _, told)] = simulated_study({"strategies": [case]}, nodes=6)
    return list(told)


def test_steady_run_is_live_throughout():
    """Figures come from the newest epoch, checkpoint ages from the log's own time."""
    shown = now(folded(steady_run(12)))
    assert shown["driver"]["status"] == "stopped"
    assert shown["figures"]["epoch"] == 12
    assert shown["figures"]["rows"] == 1200
    assert shown["figures"]["rows_per_s"] == pytest.approx(100)
    assert shown["figures"]["queries_live"] == shown["figures"]["queries"] == 2
    assert shown["figures"]["checkpoint_epoch"] == 10
    assert shown["queries"]["name"] == ["busy", "quiet"]
    assert shown["queries"]["status"] == ["live", "live"]
    assert shown["queries"]["outage_s"] == [0, 0]
    assert shown["recovery"] is None


def test_query_parts_go_down_and_come_back_one_by_one():
    """A query whose parts are not all down is partly down; its outage ends with the last part."""
    told = [*list(steady_run(5))[:-1], events.NodeLost(START_S + 6, "driver", 4, False)]
    down = [f"busy/{group}" for group in range(8)]
    job = folded([*told, events.QueriesChanged(START_S + 6, 5, down, [])])
    assert now(job)["queries"]["status"] == ["down", "live"]
    job.take(events.QueriesChanged(START_S + 8, 6, [], down[:3]))
    assert now(job)["queries"]["status"] == ["partly down", "live"]
    job.take(events.RecoveryPlanned(START_S + 8.5, down[3:], {}, 0.0))
    assert now(job)["queries"]["status"] == ["coming back", "live"]
    assert not now(job)["recovery"]["is_over"]
    job.take(events.QueriesChanged(START_S + 9, 7, [], down[3:]))
    assert now(job)["queries"]["status"] == ["live", "live"]
    detail = query_view(job, "busy", START_S + 9)
    assert [(outage["from_s"], outage["to_s"]) for outage in detail["outages"]] == [(START_S + 6, START_S + 9)]
    assert now(job)["recovery"]["is_over"]
    assert now(job)["recovery"]["took_s"] == 3
    assert now(job)["recovery"]["detected_after_s"] is None


def test_slow_query_is_live_but_said_to_be_slow():
    """Latency is judged against the query's own usual latency."""
    job = folded([started(), *(epoch(number) for number in range(1, 20)), epoch(20, latency_s={"busy": 0.6, "quiet": 1.3})])
    assert now(job)["queries"]["status"] == ["live", "slow"]
    assert history_view(job)["strips"]["quiet"][-1] == "2"


def test_driver_that_starts_again_restores_every_query():
    """The time between the last sign of the old driver and the first full epoch is an outage."""
    told = [started(), *(epoch(number) for number in range(1, 6))]
    job = folded([*told, started(START_S + 20, resumed=5)])
    assert now(job)["queries"]["status"] == ["down", "down"]
    assert now(job)["recovery"]["cause"] == "the driver started again"
    job.take(epoch(6, START_S + 25))
    assert now(job)["queries"]["status"] == ["live", "live"]
    assert query_view(job, "busy", START_S + 25)["outages"][0]["took_s"] == 20
    assert now(job)["recovery"]["is_over"]


def test_job_that_was_stopped_in_order_had_no_outage_while_it_was_off():
    """A user who stops a job and starts it later is not told of a failure that lasted hours."""
    job = folded([*steady_run(5), started(START_S + 5000, resumed=5), epoch(6, START_S + 5002)])
    assert query_view(job, "busy", START_S + 5002)["outages"][0]["took_s"] == 2


def test_log_that_was_cut_at_its_beginning_is_shown_as_far_as_it_goes():
    """Queries are known from what they publish, even if nobody told of the job's start."""
    shown = now(folded([epoch(7), epoch(8)]))
    assert sorted(shown["queries"]["name"]) == ["busy", "quiet"]
    assert shown["queries"]["status"] == ["live", "live"]
    assert shown["figures"]["epoch"] == 8


def test_unresponsive_driver_is_said_to_be_so_only_while_the_clock_runs():
    """A log that ended long ago, without a word of the driver's end, is told as it stands."""
    job = folded(list(steady_run(5))[:-1])
    assert now(job, START_S + 500, is_live=True)["driver"]["status"] == "unresponsive"
    assert now(job, START_S + 500, is_live=False)["driver"]["status"] == "running"
    assert now(folded(steady_run(5)), START_S + 500, is_live=True)["driver"]["status"] == "stopped"


def test_loss_of_a_node_that_no_query_needs_is_no_recovery():
    """Nothing is under way when nothing is missing."""
    job = folded(
        [started(), epoch(1), events.NodesKilled(START_S + 2, ["n1"]), events.NodeLost(START_S + 2, "n1", 0, False), epoch(3)]
    )
    assert now(job)["recovery"] is None
    assert now(job)["figures"]["nodes_lost"] == 1


def test_recovery_of_a_simulated_failure_is_told_step_by_step(failure):
    """Stages are in order, every failed query is back, and the most valuable ones are back early."""
    job = folded(failure)
    recovery = now(job)["recovery"]
    assert recovery["is_over"]
    assert len(recovery["lost"]) == 4
    assert len(recovery["joined"]) == 4
    assert 0 < recovery["detected_after_s"] <= recovery["planned_after_s"] <= recovery["took_s"]
    assert recovery["waiting"] == []
    assert len(recovery["back"]) == recovery["failed"] > 3
    steps = [event.at_s for event in failure if isinstance(event, events.CatchUpFinished)]
    ended_s = job.recovery.ended_s
    # A step that is told at the moment of the last return may come before or after it.
    assert sum(at_s < ended_s for at_s in steps) <= recovery["steps_in_all"] <= sum(at_s <= ended_s for at_s in steps)


def test_in_the_middle_of_a_failure_the_page_says_who_waits(failure):
    """Queries that wait are listed by priority, and phases of partitions add up."""
    began = next(event.at_s for event in failure if isinstance(event, events.NodeLost))
    job = folded(event for event in failure if event.at_s <= began + 5)
    recovery = now(job)["recovery"]
    assert not recovery["is_over"]
    assert recovery["waiting"]
    ranks = [job.queries[query].priority for query in recovery["waiting"]]
    assert ranks == sorted(ranks, reverse=True)
    assert sum(recovery["phases"].values()) == 15
    assert recovery["phases"]["down"] > 0
    assert now(job)["figures"]["nodes_up"] == 2


def test_a_plan_is_explained_by_what_it_was_chosen_from(failure):
    """One click: strategy or capacity, every failed query with priority and need, and which of them wait."""
    job = folded(failure)
    plans = [known for known in job.incidents if known.kind == "planned" and any("wait" in line for line in known.why)]
    why = incident_view(job, plans[0].id)
    assert any("free in all" in line for line in why["why"])
    header, *rows = why["table"]
    assert header[0] == "query"
    assert header[-1] == "decision"
    decided = {row[0]: row[-1] for row in rows}
    assert any(word.startswith("comes back") for word in decided.values())
    assert "waits" in decided.values()


def test_topology_and_loads_of_operators_are_shown(failure):
    """Operators are drawn upstream first, with what they cost and where their partitions are."""
    job = folded(failure)
    drawing = topology_view(job)
    assert sum(len(box["operators"]) for box in drawing["boxes"]) == 15
    shown = now(job)
    assert sum(shown["operators"]["live"]) == 15
    assert sum(shown["nodes"]["partitions"]) == 15
    operator = operator_view(job, shown["operators"]["name"][-1])
    assert sum(count for _, _, count in operator["nodes"]) == 1
    assert operator["inputs"]
    held = next(name for name, count in zip(shown["nodes"]["name"], shown["nodes"]["partitions"], strict=True) if count)
    assert sum(count for _, count in node_view(job, held)["holds"]) > 0


def test_what_is_not_there_has_no_detail():
    """A name that was mistyped is not an error of the server."""
    job = folded(steady_run(2))
    assert query_view(job, "nothing", 0.0) is None
    assert node_view(job, "nothing") is None
    assert operator_view(job, "nothing") is None
    assert incident_view(job, 99) is None


def test_large_job_stays_small_on_the_wire():
    """500 queries on 100 nodes: everything is counted, and a message stays below a quarter of a megabyte."""
    import msgspec

    job = folded(large_job(500, 100, 40, 60))
    shown = now(job)
    assert shown["figures"]["queries"] == 500
    assert len(shown["nodes"]["name"]) == 100
    assert len(msgspec.json.encode(shown)) < 250_000
    assert len(msgspec.json.encode(history_view(job))) < 250_000
    drawing = topology_view(job)
    assert sum(len(box["operators"]) for box in drawing["boxes"]) == 504
    assert len(drawing["boxes"]) < 20
    assert query_view(job, "query-000", job.last_s)["parts"] == KEY_GROUPS


def test_history_has_a_bounded_length_and_keeps_outages():
    """Ten hours of epochs take as many bins as ten minutes, and a short outage is not averaged away."""
    job = JobState()
    job.take(started())
    for number in range(1, 36_000):
        if number == 20_000:
            job.take(events.QueriesChanged(START_S + number, number, [f"busy/{group}" for group in range(8)], []))
        job.take(epoch(number))
    found = history_view(job)
    assert len(found["columns"]["at_s"]) <= 240
    assert found["strips"]["busy"].count("4") == 1
    assert set(found["strips"]["quiet"]) == {"1"}
    assert len(found["strips"]["busy"]) == len(found["columns"]["at_s"])
    assert found["columns"]["rows_per_s"][100] == pytest.approx(100)


def test_suspected_node_is_said_to_be_so_until_it_answers_or_is_lost():
    """Whoever wonders why an epoch takes long sees which node it waits for."""
    told = [started(), epoch(1), events.NodeSuspected(START_S + 2, "driver", 1.5, 10.0)]
    assert now(folded(told))["nodes"]["unanswered_s"] == [1.5]
    assert now(folded([*told, events.NodeResponded(START_S + 3, "driver", 2.5)]))["nodes"]["unanswered_s"] == [None]
    assert now(folded([*told, events.NodeLost(START_S + 3, "driver", 2, False)]))["nodes"]["unanswered_s"] == [None]


def test_every_event_is_folded_without_complaint():
    """Also those that only become incidents, and in any order."""
    told = [
        checkpoint(1),
        events.Warned(START_S, "the checkpoint of epoch 3 is torn"),
        events.WaitingForNodes(START_S, 3),
        events.BufferingSwitched(START_S, 3, True),
        events.NodeJoined(START_S, "n9", 1.6),
        events.LocalStoreMeasured(START_S, "/dev/shm", 100, {"n9": 40, "n8": 2}, {"n9": 7}),
        events.JobStopped(START_S + 1, 3, "the sink is full"),
    ]
    shown = now(folded([*told, started(START_S + 2), *told]))
    assert [known["kind"] for known in shown["incidents"]].count("warned") == 2
    assert shown["driver"]["status"] == "failed"
    assert shown["figures"]["local_store"] == {"place": "/dev/shm", "limit_bytes": 100, "used_bytes": 42, "overflow_bytes": 7}


def test_nodes_are_shown_by_the_names_that_the_user_gave_them():
    """On tiles, in details, in what happened and in the recovery; by executor where there is no name."""
    named = [events.NodeNamed(START_S, "0", "node-1"), events.NodeNamed(START_S, "1", "node-2")]
    load = events.LoadMeasured(START_S + 1, 1, {}, {node: events.NodeLoad(0.1, 1.0, {"count": 2}) for node in ("0", "1", "2")})
    told = [*named, started(nodes=["0", "1", "2"]), described(), load, events.NodeLost(START_S + 2, "1", 2, False)]
    job = folded([*told, events.QueriesChanged(START_S + 2, 1, ["busy/0"], [])])
    shown = now(job)
    assert dict(zip(shown["nodes"]["label"], shown["nodes"]["is_up"], strict=True)) == {
        "2": True,
        "node-1": True,
        "node-2": False,
    }
    assert shown["recovery"]["lost"][0]["node"] == "node-2"
    assert "node-2 lost, with 2 partitions" in [known["text"] for known in shown["incidents"]]
    found = node_view(job, "1")
    assert (found["label"], found["executor"], len(found["decisions"])) == ("node-2", "1", 1)
    assert operator_view(job, "count")["nodes"] == [("0", "node-1", 2), ("2", "2", 2)]
    job.take(events.NodeNamed(START_S + 3, "3", "node-2"))
    job.take(events.NodeJoined(START_S + 3, "3", 1.0))
    assert {"node-2 (executor 1)", "node-2 (executor 3)"} < set(now(job)["nodes"]["label"])


def test_lag_is_shown_by_source_and_partition():
    """The drawing has the sum of a source, its details every partition, the longest first."""
    job = folded([started(), described(), events.LagMeasured(START_S, {"rows": {"0": 5, "10": 7, "2": 7}})])
    assert now(job)["lag"] == {"rows": 19}
    assert operator_view(job, "rows")["lag"] == [("2", 7), ("10", 7), ("0", 5)]


def test_moves_are_told_with_who_asked_and_what_goes_where():
    """One click has every partition with the names of both nodes."""
    named = [events.NodeNamed(START_S, "0", "node-1"), events.NodeNamed(START_S, "1", "node-2"), started(nodes=["0", "1"])]
    moves = [
        events.MoveStarted(START_S + 1, "drain node-1", "precopy", {"count/3": ["0", "1"]}),
        events.MoveEnded(START_S + 2, "drain node-1", 1, 1.0, 0.05, 100),
    ]
    job = folded([*named, *moves])
    begun, ended = [known for known in job.incidents if known.kind in ("moving", "moved")]
    assert incident_view(job, begun.id)["table"] == [["partition", "from", "to"], ["count/3", "node-1", "node-2"]]
    assert any("drain node-1" in line for line in begun.why)
    assert ended.text == "1 partition moved in 1 s, with a pause of 50 ms"


def test_another_number_of_nodes_is_told_with_why():
    """Too full, and too empty."""
    used = "95% of what 3 nodes may spend is used"
    job = folded(
        [started(), events.ClusterScaled(START_S + 1, 3, 5, used), events.ClusterScaled(START_S + 9, 5, 4, "a user asked for it")]
    )
    more, fewer = [known for known in job.incidents if known.kind == "scaled"]
    assert (more.text, list(more.why)) == ("5 nodes are wanted instead of 3", [f"{used}. Nodes are asked for."])
    assert list(fewer.why) == ["A user asked for it. Nodes are drained one by one and given back."]


def test_an_epoch_that_is_shown_after_its_nodes_were_lost_brings_nobody_back():
    """It was committed before; the recovery goes on until a later epoch is shown, or the driver says who is back."""
    down = [f"{query}/{group}" for query in ("busy", "quiet") for group in range(8)]
    lost = [events.NodeLost(START_S + 6, "driver", 4, False), events.QueriesChanged(START_S + 6, 6, down, [])]
    told = [*list(steady_run(5))[:-1], *lost, epoch(6, START_S + 6.1)]
    job = folded(told)
    assert now(job)["queries"]["status"] == ["down", "down"]
    assert not now(job)["recovery"]["is_over"]
    job.take(epoch(7, START_S + 8))
    assert now(job)["recovery"]["took_s"] == pytest.approx(2)
