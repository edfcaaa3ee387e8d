"""Requests to a running driver and its answers: files of the durable store, one driver, one clear line each."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from resurge.cli.main import app, register
from resurge.model.names import NodeId
from resurge.model.requests import Answer, Balance, Drain, Move, Scale, Verdict
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.request_watch import RequestWatch
from resurge.runtime.driver.runner import Member
from resurge.storage import paths, requests
from resurge.storage.durable import DurableStore
from resurge.telemetry.events import NodeNamed, Warned
from resurge.testing.inline_runner import InlineRunner
from tests.support import crash_job

register()


def test_a_request_is_for_one_generation_and_answers_come_in_order(tmp_path: Path) -> None:
    """What was asked of an earlier driver is found by none; a third answer changes nothing."""
    store = DurableStore(str(tmp_path))
    requests.ask(store, 2, Drain("r1", NodeId("n1")))
    assert requests.asked(store, 2) == ["r1"] and requests.asked(store, 1) == requests.asked(store, 3) == []
    assert requests.read_request(store, 2, "r1") == Drain("r1", NodeId("n1"))
    accepted, done = Answer(Verdict.ACCEPTED, "2 move"), Answer(Verdict.DONE, "all moved", 1.5, 0.1)
    for answer in (accepted, done, Answer(Verdict.FAILED, "too late")):
        requests.answer(store, 2, "r1", answer)
    assert requests.answers(store, 2, "r1") == [accepted, done]
    requests.forget_before(store, 3)
    assert store.names(paths.REQUESTS) == []


@pytest.mark.parametrize(("content", "words"), [(b"{", "cannot be read"), (b'{"type":"Drain","request":"x","node":"n"}', "'x'")])
def test_a_file_that_is_no_request_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    """Of another version, torn, or under another name."""
    store = DurableStore(str(tmp_path))
    store.create(paths.request(1, "r1"), content)
    refused = requests.read_request(store, 1, "r1")
    assert isinstance(refused, Answer) and refused.verdict is Verdict.REFUSED and words in refused.text


def test_who_waits_is_told_when_the_driver_stops_and_nodes_go_by_the_users_names(tmp_path: Path) -> None:
    """A request that was found and not answered fails; nothing is told twice."""
    store, told, found = DurableStore(str(tmp_path)), [], threading.Event()
    watch = RequestWatch(str(tmp_path), 1, lambda ask: (told.append(ask), found.set()))
    watch.listen(NodeNamed(0.0, "7", "node-2"))
    watch.start()
    requests.ask(store, 1, Move("r1", "counts", NodeId("node-2"), [0]))
    assert found.wait(30)
    watch.close()
    assert told == [Move("r1", "counts", NodeId("7"), [0])]
    [answer] = requests.answers(store, 1, "r1")
    assert answer.verdict is Verdict.FAILED and "the driver stopped" in answer.text


class PacedRunner(InlineRunner):
    """Three nodes, and a little time between jobs, so that a user can ask while the job runs."""

    def run(self, plan):  # type: ignore[no-untyped-def]
        time.sleep(0.05)
        return super().run(plan)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A job that runs in a thread until the tests are over."""
    folder = tmp_path_factory.mktemp("running")
    crash_job.write_input(folder, epochs=400)
    # The balancer is off: a move of its own would have what a test asks for refused.
    options = RunOptions(str(folder / "job"), interval_s=0, checkpoint_interval=50, local_root=str(folder), balance="off")
    runner = PacedRunner(nodes={f"n{index}": Member(2) for index in range(3)})
    engine = Engine(crash_job.topology(folder), runner, options)
    thread = threading.Thread(target=run_until_done, args=(engine,), daemon=True)
    thread.start()
    deadline_s = time.monotonic() + 120
    while not (engine.is_started and engine.recovery.head > 2) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    yield folder / "job"
    engine.stop()
    thread.join(120)


def asked(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output.strip() or str(done.exception)


def test_a_move_and_a_drain_are_carried_out_while_the_job_runs(running: Path) -> None:
    """The command waits, and says how long it took and how long the key groups paused."""
    code, told = asked("move", running, "totals", "--to", "n2", "--json")
    answer = json.loads(told)
    assert (code, answer["verdict"]) == (0, "done"), told
    assert "moved" in answer["text"] and answer["pause_s"] < 5
    code, told = asked("move", running, "totals", "--to", "n2", "--how", "direct")
    assert code == 0 and "everything asked for is on n2 already" in told
    code, told = asked("balance", running, "--dry-run")
    assert code == 0 and "would move" in told
    code, told = asked("drain", running, "n2")
    assert code == 0 and told.startswith("accepted: ") and "node n2 is empty and may go" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("move", "total", "--to", "n1"), "no operator with state is called 'total'; did you mean 'totals'?"),
        (("move", "totals/9", "--to", "n1"), "operator totals has key groups 0 to 2, and none of number 9"),
        (("move", "totals/x", "--to", "n1"), "expected numbers and ranges such as 3 or 0-3,7, got 'x'"),
        (("move", "totals/0", "--to", "n9"), "there is no node 'n9' (up and warm: n0, n1, n2)"),
        (("move", "totals/0", "--to", "n1", "--how", "teleport"), "a move cannot be made by 'teleport'"),
        (("drain", "gone"), "there is no node 'gone'"),
        (("scale", "3"), "the job runs without --scale: start it with --scale MIN..MAX"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments: tuple[str, ...], words: str, running: Path) -> None:
    """Wrong names, a node that is gone, an unknown way."""
    code, told = asked(arguments[0], running, *arguments[1:])
    assert code == 1 and words in told and "\n" not in told


def test_a_job_that_does_not_run_answers_nothing_and_the_request_is_withdrawn(tmp_path: Path) -> None:
    """The next driver does not find it."""
    crash_job.write_input(tmp_path, epochs=1)
    crash_job.run(tmp_path, InlineRunner(2))
    code, told = asked("balance", tmp_path / "job", "--timeout", "1")
    assert code == 1 and "no driver answered within 1 s" in told
    assert DurableStore(str(tmp_path / "job")).names(paths.REQUESTS) == []
    assert asked("drain", tmp_path / "nowhere", "n1")[1].startswith("there is no job at ")


def test_a_request_travels_as_it_is(tmp_path: Path) -> None:
    """Every kind of request is read as it was written."""
    store = DurableStore(str(tmp_path))
    for ask in (
        Move("a", "counts", NodeId("n"), [1], "direct"),
        Drain("b", NodeId("n")),
        Balance("c", is_dry_run=True),
        Scale("d", 3),
    ):
        requests.ask(store, 1, ask)
        assert requests.read_request(store, 1, ask.request) == ask


def test_a_node_that_was_drained_takes_nothing_in_the_next_run(tmp_path: Path) -> None:
    """Its failure domain is in the checkpoint; the next run warns of it, and may be told to use it."""
    crash_job.write_input(tmp_path, epochs=40)
    members = {f"n{index}": Member(2, domain=f"host-{index}") for index in range(2)}

    def engine(**more: bool) -> Engine:
        options = RunOptions(str(tmp_path / "job"), interval_s=0, checkpoint_interval=2, local_root=str(tmp_path), **more)
        return Engine(crash_job.topology(tmp_path), PacedRunner(nodes=members), options)

    first = engine()
    first.start()
    first.ask(Drain("r1", NodeId("n1")))
    first.run(until_idle=True)
    assert first.state.draining == {"n1"} and first.state.migration is None
    first.close()
    warned: list[str] = []
    again = engine()
    again.telemetry.listeners.append(lambda event: warned.append(event.message) if isinstance(event, Warned) else None)
    again.start()
    assert again.state.draining == {"n1"}
    assert {known.node for known in again.recovery.statuses.values()} <= {"n0", None}
    assert any("nodes of host-1 take nothing" in message for message in warned)
    again.close()
    used = engine(uses_drained=True)
    used.start()
    assert not used.state.draining
    used.close()
