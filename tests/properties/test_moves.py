"""Partitions move between nodes at random, nodes die on the way, and no output changes. The real engine, without a JVM."""

import random
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from resurge.model.names import NodeId
from resurge.model.requests import CPA, CPAL, DIRECT, PRECOPY, Ask, Balance, Drain, Move
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.runtime.worker import arrivals, shipments
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.telemetry.events import Event, MoveEnded, MoveStarted
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job

EPOCHS = 8
OPERATORS = ("sliding", "tumbling", "sessions", "joined", "totals", "ranking", "maintained")


class MovingRunner(InlineRunner):
    """Three nodes; before each job a user may ask for something, and nodes may die before the n-th task that a move needs."""

    def __init__(self, asks: Iterable[Ask], *, is_concurrent: bool, kill_at: int | None = None, victims: str = "") -> None:
        super().__init__(nodes={f"n{index}": Member(4) for index in range(3)})
        self.asks = list(asks)
        self.is_concurrent = is_concurrent
        self.kill_at, self.victims = kill_at, victims
        self.engine: Engine | None = None
        self.tasks_of_moves = 0
        self.ask_after = 1
        self.before_task = self._before

    def run(self, plan: JobPlan) -> list[SlotReport]:
        if self.asks and plan.epochs and self.engine is not None and plan.epoch > self.ask_after:
            self.engine.ask(self.asks.pop(0))
        self.moving = (
            {slot.node for slot in plan.slots if slot.sends},
            {slot.node for slot in plan.slots if any(work.arrives or work.copy for work in slot.cohorts)},
        )
        return super().run(plan)

    def _before(self, level: int, node: str) -> None:
        sources, targets = self.moving
        if not sources and not targets:
            return
        self.tasks_of_moves += 1
        if self.tasks_of_moves == self.kill_at:
            doomed = {"source": sources, "target": targets, "both": sources | targets}[self.victims] or targets
            self.kill(*doomed)
            for number in range(len(doomed)):
                self.add(f"new{number}", Member(4))


def run(folder: Path, runner: MovingRunner, **options: object) -> list[Event]:
    """Run the job to its end; what telemetry told."""
    crash_job.write_input(folder, epochs=EPOCHS)
    told: list[Event] = []
    chosen = RunOptions(str(folder / "job"), interval_s=0, checkpoint_interval=3, local_root=str(folder), **options)  # type: ignore[arg-type]
    with TelemetryLog() as telemetry:
        telemetry.listeners.append(told.append)
        runner.engine = Engine(crash_job.topology(folder), runner, chosen, telemetry)
        run_until_done(runner.engine, until_idle=True, drain=True)
    return told


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """What the job shows when nothing moves."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder, MovingRunner((), is_concurrent=False))
    return crash_job.shown(folder)


def random_asks(seed: int) -> list[Ask]:
    """Moves of any operator to any node, and now and then a drain or a balance."""
    rng = random.Random(seed)
    asks: list[Ask] = []
    for number in range(EPOCHS):
        name, node = f"r{number}", NodeId(f"n{rng.randrange(3)}")
        operator, groups = rng.choice(OPERATORS), rng.sample(range(3), rng.randint(1, 3))
        asks.append(
            rng.choice(
                (
                    Move(name, operator, node, groups, PRECOPY),
                    Move(name, operator, node, groups, DIRECT),
                    Move(name, operator, node, groups, CPA),
                    Move(name, operator, node, groups, CPAL),
                    Drain(name, node),
                    Balance(name),
                )
            )
        )
    return asks


@pytest.mark.parametrize("is_concurrent", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_moves_change_no_output(seed: int, is_concurrent: bool, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]) -> None:
    """Whatever moves wherever, every query shows the same rows in the same epochs."""
    told = run(tmp_path, MovingRunner(random_asks(seed), is_concurrent=is_concurrent))
    assert_same(crash_job.shown(tmp_path), undisturbed, f"seed {seed}")
    assert any(isinstance(event, MoveEnded) and event.moved for event in told), "nothing moved"


@pytest.mark.parametrize(
    ("how", "victims", "kill_at"),
    [
        (how, victims, kill_at)
        for how, points in ((PRECOPY, (1, 17, 40, 64)), (DIRECT, (1, 20)), (CPAL, (1, 20)))
        for victims, kill_at in zip(("source", "target", "both", "source"), points, strict=False)
    ],
)
def test_a_node_lost_before_a_task_of_a_move_changes_no_output(
    how: str, victims: str, kill_at: int, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """In the shipment or in the switch, at any level: one primary is left, and nothing is lost or repeated."""
    ask = Move("r1", "sliding", NodeId("n2"), [0, 1, 2], how)
    runner = MovingRunner([ask], is_concurrent=False, kill_at=kill_at, victims=victims)
    # It needs a checkpoint, of which some epochs must be replayed.
    runner.ask_after = 5 if how == CPAL else 1
    told = run(tmp_path, runner, balance="off")
    assert runner.tasks_of_moves >= kill_at
    assert_same(crash_job.shown(tmp_path), undisturbed, f"{victims} lost before task {kill_at} of a {how} move")
    ours = [event for event in told if isinstance(event, MoveStarted | MoveEnded) and event.request == ask.request]
    assert [type(event) for event in ours] == [MoveStarted, MoveEnded]


@pytest.mark.parametrize("operator", ["totals", "ranking"])
@pytest.mark.parametrize("how", [CPA, CPAL])
def test_a_target_catches_up_from_its_copy_or_the_checkpoint(
    how: str, operator: str, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """It takes the epochs since, also below another keyed operator, which is replayed for it; what is shown is the same."""
    runner = MovingRunner([], is_concurrent=True)
    before = runner.run

    def ask(plan: JobPlan) -> list[SlotReport]:
        if runner.engine is not None and plan.epoch == 6 and not asked:
            asked.append(True)
            for number, node in enumerate(runner.members()):
                runner.engine.ask(Move(f"r{number}", operator, node, [0, 1, 2], how))
        return before(plan)

    asked: list[bool] = []
    runner.run = ask  # type: ignore[method-assign]
    told = run(tmp_path, runner, balance="off")
    assert_same(crash_job.shown(tmp_path), undisturbed, f"{how} of {operator}")
    moved = [event for event in told if isinstance(event, MoveEnded) and event.moved]
    assert moved and not any(event.failure for event in moved)


def test_the_switch_after_a_precopy_ships_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole state goes beforehand; with the switch go the changes since the epoch of the copy, because they were kept."""
    arrived: list[tuple[int | None, int]] = []

    def opened(content: bytes) -> shipments.Shipment:
        shipment = shipments.opened(content)
        if shipment.operator == "totals":
            arrived.append((shipment.since, shipment.cursor))
        return shipment

    monkeypatch.setattr(arrivals, "opened", opened)
    run(tmp_path, MovingRunner([Move("r1", "totals", NodeId("n2"), [0, 1])], is_concurrent=False))
    before, switch = [cursor for since, cursor in arrived if since is None], [since for since, _ in arrived if since is not None]
    assert before and set(before) == set(switch), arrived
