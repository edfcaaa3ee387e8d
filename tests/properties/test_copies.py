"""States are copied to other nodes, nodes die, and recovery goes on from the copies: no output changes. The real engine, without a JVM."""

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.runtime.driver.runner import Member
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.telemetry.events import CopiesPlaced, CopiesRefreshed, CopiesUsed, Event, NodeLost, Warned
from resurge.telemetry.log import TelemetryLog
from resurge.testing.inline_runner import InlineRunner
from tests.properties.test_crash_points import assert_same
from tests.support import crash_job
from tests.support.processes import wait_until

EPOCHS = 12


class CopyingRunner(InlineRunner):
    """Three nodes; when a live epoch is about to run, a test may do something to them."""

    def __init__(self, *, is_concurrent: bool = False) -> None:
        super().__init__(nodes={f"n{index}": Member(2) for index in range(3)})
        self.is_concurrent = is_concurrent
        self.engine: Engine | None = None
        self.at_epoch: dict[int, Callable[[], None]] = {}
        self.before_task = self._before
        self.tasks_to_live: int | None = None
        self.victim = "n1"

    def run(self, plan: JobPlan) -> list[SlotReport]:
        if plan.epochs and plan.epoch in self.at_epoch:
            self._wait_for_plans()
            self.at_epoch.pop(plan.epoch)()
        return super().run(plan)

    def _wait_for_plans(self) -> None:
        """The planner runs in a thread of its own."""
        assert self.engine is not None
        copying = self.engine.state.copying
        if copying.question is not None:
            wait_until(lambda: bool(self.engine and self.engine._answers), "the planner of copies", 30)

    def _before(self, level: int, node: str) -> None:
        if self.tasks_to_live is None or self.victim not in self.members():
            return
        self.tasks_to_live -= 1
        if self.tasks_to_live < 0:
            self.kill(self.victim)
            self.add("spare", Member(2))


def run(folder: Path, runner: CopyingRunner, **options: object) -> list[Event]:
    """Run the job to its end; what telemetry told."""
    crash_job.write_input(folder, epochs=EPOCHS)
    told: list[Event] = []
    # What the balancer moves meanwhile would be a chance of the machine.
    defaults: dict[str, object] = {"interval_s": 0, "checkpoint_interval": 4, "local_root": str(folder), "balance": "off"}
    chosen = RunOptions(str(folder / "job"), **{**defaults, **options})  # type: ignore[arg-type]
    with TelemetryLog() as telemetry:
        telemetry.listeners.append(told.append)
        runner.engine = Engine(crash_job.topology(folder), runner, chosen, telemetry)
        for epoch in range(2, EPOCHS):
            runner.at_epoch.setdefault(epoch, lambda: None)
        run_until_done(runner.engine, until_idle=True, drain=True)
    return told


def of(told: list[Event], kind: type) -> list[Event]:
    return [event for event in told if isinstance(event, kind)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """What the job shows without copies and losses."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder, CopyingRunner())
    return crash_job.shown(folder)


@pytest.mark.parametrize(("copies_every", "least_saved"), [(None, 0), (1, 1)])
def test_a_lost_node_comes_back_from_copies(
    copies_every: int | None, least_saved: int, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]
) -> None:
    """The partitions of the lost node go on from their copies: with frequent refreshes, without most of the epochs since the checkpoint."""
    runner = CopyingRunner()
    runner.at_epoch[8] = lambda: runner.kill("n1")
    told = run(tmp_path, runner, copies=1, copies_every=copies_every, checkpoint_interval=5)
    assert_same(crash_job.shown(tmp_path), undisturbed, "after a loss with copies")
    assert of(told, CopiesPlaced) and of(told, CopiesRefreshed) and len(of(told, NodeLost)) == 1
    used = of(told, CopiesUsed)
    assert used and sum(len(event.partitions) for event in used) >= 3
    assert sum(event.bytes_saved for event in used) > 0
    assert sum(event.epochs_saved for event in used) >= least_saved


@pytest.mark.parametrize("seed", range(4))
def test_losses_at_any_moment_change_no_output(seed: int, tmp_path: Path, undisturbed: dict[str, pl.DataFrame]) -> None:
    """Nodes die before any task, also of a job that ships copies; one or two copies, refreshed often or seldom."""
    rng = random.Random(seed)
    runner = CopyingRunner(is_concurrent=rng.random() < 0.5)
    runner.tasks_to_live, runner.victim = rng.randrange(40, 300), rng.choice(("n0", "n1", "n2"))
    told = run(
        tmp_path,
        runner,
        copies=rng.choice((1, 2)),
        copies_every=rng.choice((None, 1, 2)),
        copies_placement=rng.choice(("correlated", "even", "baseline")),
    )
    assert_same(crash_job.shown(tmp_path), undisturbed, f"seed {seed}")
    assert of(told, CopiesRefreshed)


def test_a_damaged_copy_is_not_used(tmp_path: Path, undisturbed: dict[str, pl.DataFrame]) -> None:
    """A copy whose file was altered since it arrived is found by its checksum; its partitions are restored from the checkpoint."""
    runner = CopyingRunner()

    def damage() -> None:
        assert runner.engine is not None
        versions, state = runner.engine.edge.versions, runner.engine.state
        mine = [place for place in versions.copies if state.recovery.statuses[place[0]].node == "n1"]
        assert mine
        # Several copies may lie in one file: altered twice, it would be whole again.
        segments = {(node, versions.copies[partition, node].segment) for partition, node in mine}
        for path in [path for node, segment in segments for path in tmp_path.glob(f"resurge-*/{node}/{segment}")]:
            content = bytearray(path.read_bytes())
            content[64] ^= 0xFF
            path.write_bytes(content)
        runner.kill("n1")

    runner.at_epoch[8] = damage
    told = run(tmp_path, runner, copies=1)
    assert_same(crash_job.shown(tmp_path), undisturbed, "after a damaged copy")
    assert any("a copy is not used" in event.message for event in of(told, Warned))


def test_copies_can_be_chosen_by_operator(tmp_path: Path) -> None:
    """Only the operators that are named have copies."""
    runner, places = CopyingRunner(), set[str]()

    def look() -> None:
        assert runner.engine is not None
        places.update(partition.operator for partition, _ in runner.engine.state.copies)

    runner.at_epoch[10] = look
    run(tmp_path, runner, copies=0, copies_by_operator={"totals": 1}, copies_every=1)
    assert places == {"totals"}
