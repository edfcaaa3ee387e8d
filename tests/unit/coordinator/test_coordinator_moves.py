"""How partitions move: shipped beforehand, switched with one live epoch, and what is left when something fails on the way."""

from dataclasses import replace

import pytest

from resurge.coordinator import draining
from resurge.coordinator.commands import Cancel, Command, Emit, Plan, PlanCopies, PlanMoves, Poll, Respond
from resurge.coordinator.copying import CopySettings
from resurge.coordinator.handle import handle
from resurge.coordinator.inputs import (
    ENGINE_FAILED,
    Done,
    Failure,
    Input,
    InputReady,
    JobEnded,
    JobResult,
    Member,
    NodesChanged,
    Planned,
    Published,
    Requested,
    RunEpochs,
    Start,
    Tick,
)
from resurge.coordinator.measuring import priced
from resurge.coordinator.move_requests import answered
from resurge.coordinator.policies.copies import MOST_BYTES
from resurge.coordinator.scheduling import Strategy
from resurge.coordinator.scheduling import answered as scheduled
from resurge.coordinator.starting import Found, first_state
from resurge.coordinator.state import Description, JobState, Migration, Settings
from resurge.model.names import KeyGroup, NodeId, Partition
from resurge.model.requests import DIRECT, Balance, Drain, Move, Verdict
from resurge.model.work import Job, Replica, Role
from resurge.planning.key_group_moves import MoveNode, MovePartition, MoveProblem
from resurge.protocols import recovery as transitions
from resurge.protocols.recovery import Graph, Phase, QueryNeed
from resurge.telemetry.events import MoveEnded, MoveStarted

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
COUNTS = [Partition("counts", KeyGroup(group)) for group in range(6)]


class Driven:
    """A running job: half of counts on n1, the others on n2, n3 empty; each input is answered as a driver would."""

    def __init__(
        self, *, checkpoint_interval: int = 0, balances: bool = False, costs: float = 0.2, strategy: str = "incremental"
    ) -> None:
        graph = Graph({p: frozenset[Partition]() for p in COUNTS}, {str(p): QueryNeed(1, frozenset((p,))) for p in COUNTS})
        members = {node: Member(1.0) for node in (N1, N2, N3)}
        settings = Settings(checkpoint_interval=checkpoint_interval, balances=balances)
        found = Found(costs=dict.fromkeys(COUNTS, costs))
        state = first_state(settings, Description("job", "test", 1, {}, 6, {}), Strategy(strategy), graph, members, found)
        placement = dict(zip(COUNTS, (N1, N1, N1, N2, N2, N2), strict=True))
        recovery = transitions.begin(graph, state.recovery.capacity, placement, 0)
        self.state: JobState = replace(state, recovery=replace(recovery, costs=state.recovery.costs))
        self.sent: list[Command] = []
        self.sizes_bytes: dict[Partition, int] | None = None
        self.now_s = 0.0
        self.tell(Requested(Start()), Requested(RunEpochs()))

    def tell(self, *events: Input) -> None:
        waiting = list(events)
        while waiting:
            self.state, commands = handle(self.state, waiting.pop(0), self.now_s)
            self.sent += commands
            for command in commands:
                if isinstance(command, Poll):
                    waiting.append(InputReady(command.epoch, is_empty=False))
                elif isinstance(command, Plan):
                    answer = scheduled(command.recovery, command.strategy)
                    placement = {str(partition): node for partition, node in answer.placement.items()}
                    waiting.append(Planned(command.number, placement, list(answer.queries)))
                elif isinstance(command, PlanMoves):
                    waiting.append(answered(command.number, command.problem, self.sizes_bytes))
                elif isinstance(command, PlanCopies):
                    # Where copies lie is what a test says.
                    continue
                elif (number := getattr(command, "number", None)) is not None:
                    kind = {"Append": Done, "Publish": Published}.get(type(command).__name__, Done)
                    waiting.append(kind(number))

    def job(self, *, ships_only: bool = False) -> Job:
        """The job that runs: the live one, or the one that ships."""
        [job] = [running.job for running in self.state.jobs.values() if running.job.is_shipping_only == ships_only]
        return job

    def finish(self, job: Job, shipped_bytes: int = 10, *, after_s: float = 1.0) -> None:
        """A job succeeds; usually after a whole interval, so that the next epoch is due."""
        sizes = {str(ship.partition): shipped_bytes for ship in job.ships}
        self.now_s += after_s
        self.tell(JobEnded(job.attempt, JobResult(rows_read=1, shipped_bytes=sizes, shipping_s=0.01 if job.leaves else 0.0)))

    def answers(self) -> list[tuple[Verdict, str]]:
        return [(c.answer.verdict, c.answer.text) for c in self.sent if isinstance(c, Respond)]

    def emitted(self, kind: type) -> list[object]:
        return [command.event for command in self.sent if isinstance(command, Emit) and isinstance(command.event, kind)]

    def place(self, partition: Partition) -> str | None:
        return self.state.recovery.statuses[partition].node


def started() -> Driven:
    """A job that has committed an epoch, so that states exist on nodes."""
    driven = Driven()
    driven.finish(driven.job())
    return driven


def test_state_is_shipped_while_epochs_go_on_and_the_rest_with_the_switch() -> None:
    """Precopy: a background job, then one live epoch that the partition takes on its new node."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0])))
    driven.finish(driven.job())
    shipping, live = driven.job(ships_only=True), driven.job()
    assert [(ship.source, ship.target, ship.base) for ship in shipping.ships] == [(N1, N3, None)]
    assert live.live_epoch is not None and not live.leaves and driven.place(COUNTS[0]) == N1
    kept = {task.partition: task.keep_after for task in live.tasks}
    assert kept[COUNTS[0]] == kept[COUNTS[1]] == 1 and kept[COUNTS[5]] is None
    driven.finish(shipping)
    driven.finish(live)
    switch = driven.job()
    assert switch.leaves == {COUNTS[0]: N1}
    assert [(ship.cursor, ship.base) for ship in switch.ships] == [(driven.state.recovery.head, shipping.attempt)]
    assert driven.place(COUNTS[0]) == N1
    driven.finish(switch)
    assert driven.place(COUNTS[0]) == N3 and driven.state.versions[COUNTS[0]] == switch.attempt
    assert [verdict for verdict, _ in driven.answers()] == [Verdict.ACCEPTED, Verdict.DONE]
    [begun], [ended] = driven.emitted(MoveStarted), driven.emitted(MoveEnded)
    assert begun.partitions == {"counts/0": ["n1", "n3"]} and (ended.moved, ended.pause_s, ended.failure) == (1, 0.01, "")


def test_a_shipment_begins_early_between_two_epochs_so_that_the_next_one_finds_its_cores_free() -> None:
    """A request that comes later waits for the end of the next epoch; one that comes early does not."""
    driven = started()
    driven.finish(driven.job(), after_s=0.2)
    driven.now_s += 0.5
    driven.tell(Requested(Move("r1", "counts", N3, [0])))
    assert not driven.state.jobs
    driven.now_s += 0.3
    driven.tell(Tick())
    [running] = driven.state.jobs.values()
    assert running.job.live_epoch is not None
    driven.finish(running.job, after_s=0.2)
    assert driven.job(ships_only=True).ships
    early = started()
    early.finish(early.job(), after_s=0.2)
    early.now_s += 0.1
    early.tell(Requested(Move("r1", "counts", N3, [0])))
    assert early.job(ships_only=True).ships


def test_what_is_shipped_for_copies_of_others_is_not_counted_as_the_move_s() -> None:
    """One job may ship both."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0])))
    driven.finish(driven.job())
    shipping, live = driven.job(ships_only=True), driven.job()
    both = replace(shipping, ships=(*shipping.ships, replace(shipping.ships[0], partition=COUNTS[1])))
    running = driven.state.jobs[shipping.attempt]
    driven.state = replace(driven.state, jobs={**driven.state.jobs, shipping.attempt: replace(running, job=both)})
    driven.finish(both, shipped_bytes=500)
    driven.finish(live)
    driven.finish(driven.job(), shipped_bytes=7)
    [ended] = driven.emitted(MoveEnded)
    assert isinstance(ended, MoveEnded) and ended.shipped_bytes == 507


def test_direct_pauses_what_moves_while_all_of_it_is_shipped_and_nobody_else_waits() -> None:
    """Other partitions take epochs meanwhile; those that moved catch up."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0, 1], DIRECT)))
    driven.finish(driven.job())
    shipping = driven.job(ships_only=True)
    assert [ship.partition for ship in shipping.ships] == COUNTS[:2] and [ship.base for ship in shipping.ships] == [None, None]
    for _ in range(2):
        live = driven.job()
        assert {task.partition for task in live.tasks} == set(COUNTS[2:]) and N3 not in live.task_nodes
        driven.finish(live)
    assert driven.place(COUNTS[0]) == N1
    driven.finish(shipping)
    driven.finish(driven.job())
    assert driven.place(COUNTS[0]) == driven.place(COUNTS[1]) == N3
    for _ in range(6):
        for running in list(driven.state.jobs.values()):
            driven.finish(running.job)
    assert driven.state.recovery.all_live and driven.answers()[-1] == (Verdict.DONE, "2 partitions have moved")
    assert driven.emitted(MoveEnded)[0].pause_s > 0


def test_large_changes_are_shipped_again_before_the_switch_but_not_for_ever() -> None:
    """A state that changes faster than it is shipped switches after some rounds all the same."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0])))
    bases = []
    for _ in range(20):
        for running in list(driven.state.jobs.values()):
            if running.job.is_shipping_only:
                bases.append(running.job.ships[0].base)
                driven.finish(running.job, shipped_bytes=10**8)
        driven.finish(driven.job())
    assert len(bases) == 4 and bases[0] is None and None not in bases[1:]
    assert driven.place(COUNTS[0]) == N3


@pytest.mark.parametrize("lost", [N1, N3])
def test_a_node_lost_in_the_switch_leaves_the_source_primary_or_recovers_it(lost: NodeId) -> None:
    """The switch is void: the source has the primary as before, or it is down like anything else on a lost node."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0])))
    driven.finish(driven.job())
    driven.finish(driven.job(ships_only=True))
    driven.finish(driven.job())
    switch, version = driven.job(), driven.state.versions[COUNTS[0]]
    assert switch.leaves
    driven.tell(NodesChanged([lost]))
    assert Cancel(switch.attempt) in driven.sent
    if lost == N3:
        assert driven.place(COUNTS[0]) == N1 and driven.state.versions[COUNTS[0]] == version
    else:
        assert COUNTS[0] not in driven.state.versions
    assert [verdict for verdict, _ in driven.answers()] == [Verdict.ACCEPTED, Verdict.FAILED]
    assert driven.state.migration is None and driven.emitted(MoveEnded)[0].failure
    driven.tell(JobEnded(switch.attempt, JobResult(rows_read=1)))
    assert driven.state.versions.get(COUNTS[0]) != switch.attempt


@pytest.mark.parametrize("lost", [N1, N2, N3])
def test_a_node_lost_while_a_direct_move_pauses_ends_it_and_what_was_paused_goes_on(lost: NodeId) -> None:
    """Where its state is, if that is not lost; from the checkpoint, if it is."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0], DIRECT)))
    driven.finish(driven.job())
    driven.tell(NodesChanged([lost]))
    assert driven.answers()[-1] == (Verdict.FAILED, f"{lost} was lost; nothing has moved")
    known = driven.state.recovery.statuses[COUNTS[0]]
    assert known.phase in (Phase.CATCHING_UP, Phase.LIVE) and (known.node == N1) == (lost != N1)
    for _ in range(9):
        for running in list(driven.state.jobs.values()):
            driven.finish(running.job)
    assert driven.state.recovery.all_live


def test_a_direct_shipment_that_fails_lets_what_was_paused_go_on_where_it_is() -> None:
    """It catches up with what it missed."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0], DIRECT)))
    driven.finish(driven.job())
    driven.tell(JobEnded(driven.job(ships_only=True).attempt, failure=Failure(ENGINE_FAILED, "a run is gone")))
    assert driven.answers()[-1] == (Verdict.FAILED, "a run is gone; nothing has moved")
    for _ in range(6):
        for running in list(driven.state.jobs.values()):
            driven.finish(running.job)
    assert driven.state.recovery.all_live and driven.place(COUNTS[0]) == N1


def test_a_shipment_that_fails_ends_the_move_and_not_the_job() -> None:
    """Whatever is wrong with shipping, epochs go on."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0])))
    driven.finish(driven.job())
    driven.tell(JobEnded(driven.job(ships_only=True).attempt, failure=Failure(ENGINE_FAILED, "a run is gone")))
    assert driven.answers()[-1] == (Verdict.FAILED, "a run is gone; nothing has moved")
    before = driven.state.recovery.head
    driven.finish(driven.job())
    assert driven.state.failure is None and driven.state.recovery.head == before + 1


def test_no_partition_switches_with_a_checkpoint() -> None:
    """The epoch that saves everything does nothing else."""
    driven = Driven(checkpoint_interval=2)
    driven.finish(driven.job())
    driven.sizes_bytes = dict.fromkeys(COUNTS, 1)
    driven.tell(Requested(Drain("r1", N1)))
    live = driven.job()
    assert live.is_checkpoint and not live.leaves
    driven.finish(live)
    assert driven.job().leaves


def test_a_drained_node_is_emptied_and_takes_nothing_again() -> None:
    """Its partitions go where there is room; when it is gone, nothing was lost."""
    driven = started()
    driven.tell(Requested(Drain("r1", N1)))
    for _ in range(6):
        for running in list(driven.state.jobs.values()):
            driven.finish(running.job)
    assert driven.answers()[-1] == (Verdict.DONE, "node n1 is empty and may go")
    assert {driven.place(partition) for partition in COUNTS} == {N2, N3}
    driven.tell(Requested(Move("r2", "counts", N1, [0])))
    assert driven.answers()[-1] == (Verdict.REFUSED, "node n1 drains; choose another target")
    assert N1 not in driven.job().nodes
    running = driven.job()
    driven.tell(NodesChanged([N1]))
    assert driven.state.recovery.all_live and not driven.state.recovery.is_buffering and driven.state.recovery.nodes_lost == 0
    assert driven.job() == running


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (Move("r", "count", N3), "no operator with state is called 'count'; did you mean 'counts'? (there are: counts)"),
        (Move("r", "counts", N3, [7]), "operator counts has key groups 0 to 5, and none of number 7"),
        (Move("r", "counts", NodeId("n9"), [0]), "there is no node 'n9' (up and warm: n1, n2, n3)"),
        (Move("r", "counts", N3, [0], "precpy"), "a move cannot be made by 'precpy'; did you mean 'precopy'?"),
        (Move("r", "counts", N3), "node n3 may spend 1 CPU seconds per second and would have to spend 1.2; move fewer"),
        (
            Move("r", "counts", N3, [0], "cpa"),
            "counts/0 has no copy on n3 and no checkpoint yet, and cpa needs one of them; wait for the first checkpoint, or move by",
        ),
        (Drain("r", NodeId("gone")), "there is no node 'gone' (up and warm: n1, n2, n3)"),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_refused_in_one_line(ask: Move | Drain, words: str) -> None:
    """The reason, what there is, and what to do."""
    driven = started()
    driven.tell(Requested(ask))
    [(verdict, text)] = driven.answers()
    assert verdict is Verdict.REFUSED and words in text and "\n" not in text
    assert driven.state.migration is None and not driven.state.draining


def test_what_the_balancer_began_stands_back_for_a_user() -> None:
    """Its state is on the way, and nothing has moved: the user's move begins; a request that is wrong stops nothing."""
    driven = Driven(balances=True)
    while driven.state.migration is None or not driven.state.migration.moves:
        driven.finish(driven.job())
    driven.tell(Requested(Move("r1", "nobody", N3)))
    assert driven.state.migration is not None and not driven.state.migration.request
    driven.tell(Requested(Move("r2", "counts", N2, [0])))
    assert driven.state.migration.request == "r2"
    assert [verdict for verdict, _ in driven.answers()] == [Verdict.REFUSED, Verdict.ACCEPTED]
    while driven.state.migration is not None:
        for running in list(driven.state.jobs.values()):
            driven.finish(running.job)
    assert driven.place(COUNTS[0]) == N2


def test_a_second_request_meanwhile_is_refused() -> None:
    """One migration at a time."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N3, [0])), Requested(Drain("r2", N2)), Requested(Balance("r3")))
    others = [text for verdict, text in driven.answers() if verdict is Verdict.REFUSED]
    assert others == ["another move is under way (request r1); try again when it has ended"] * 2


def test_a_request_in_the_middle_of_a_recovery_is_refused() -> None:
    """What is lost comes first."""
    driven = started()
    driven.tell(NodesChanged([N2]), Requested(Move("r1", "counts", N3, [0])))
    assert driven.answers() == [(Verdict.REFUSED, "some partitions are not live; try again when all queries are back")]


def test_a_move_to_where_everything_is_already_is_done_at_once() -> None:
    """Nothing is shipped for it."""
    driven = started()
    driven.tell(Requested(Move("r1", "counts", N1, [0, 1])))
    assert driven.answers() == [(Verdict.DONE, "everything asked for is on n1 already")]


def test_a_drain_without_room_is_refused_with_what_is_short() -> None:
    """The node stays as it was."""
    driven = Driven(costs=0.3)
    driven.finish(driven.job())
    driven.tell(NodesChanged([N3]), Requested(Drain("r1", N1)))
    driven.finish(driven.job())
    [(verdict, text)] = driven.answers()
    assert verdict is Verdict.REFUSED and text.startswith("'n1' cannot be drained: its partitions cost 0.9, the others have 0.1")
    assert not driven.state.draining and driven.state.recovery.capacity[N1] == 1.0


def test_a_dry_run_says_what_would_move_and_moves_nothing() -> None:
    """The plan in one line."""
    driven = started()
    driven.tell(Requested(Balance("r1", is_dry_run=True)))
    driven.finish(driven.job())
    [(verdict, text)] = driven.answers()
    assert verdict is Verdict.DONE and "would move" in text and " to n3" in text
    assert not driven.emitted(MoveStarted) and driven.place(COUNTS[0]) == N1


def test_the_balancer_waits_until_load_was_uneven_for_some_epochs_and_rests_afterwards() -> None:
    """An empty node gets its share, once, without being asked for; never above a capacity."""
    driven = Driven(balances=True)
    begun = []
    for _ in range(30):
        for running in list(driven.state.jobs.values()):
            driven.finish(running.job)
        begun.append(len(driven.emitted(MoveStarted)))
    assert begun[1] == 0 and begun[-1] == 1
    loads = {node: sum(driven.place(partition) == node for partition in COUNTS) for node in (N1, N2, N3)}
    assert sorted(loads.values()) == [2, 2, 2] and not driven.answers()


@pytest.mark.parametrize("strategy", ["eager", "source-replay"])
def test_what_is_lost_does_not_come_back_on_a_drained_node_however_full_the_others_are(strategy: str) -> None:
    """Also by strategies that overfill nodes."""
    driven = Driven(costs=0.3, strategy=strategy)
    driven.finish(driven.job())
    driven.tell(Requested(Drain("r1", N3)))
    driven.finish(driven.job())
    assert driven.answers()[-1] == (Verdict.DONE, "node n3 is empty and may go")
    driven.tell(NodesChanged([N2]))
    assert {driven.place(partition) for partition in COUNTS} == {N1}


def test_small_states_are_shipped_with_the_switch_alone() -> None:
    """Where sizes are known and small, a background job would only take time."""
    driven = Driven(balances=True)
    driven.sizes_bytes = dict.fromkeys(COUNTS, 1_000)
    while not driven.emitted(MoveEnded):
        assert not any(running.job.is_shipping_only for running in driven.state.jobs.values())
        driven.finish(driven.job())
    assert {driven.place(partition) for partition in COUNTS} == {N1, N2, N3}


def test_large_states_are_shipped_beforehand_and_the_planner_knows_their_sizes() -> None:
    """What is large is precopied; the planner moves the cheaper of two states that cost the same."""
    driven = Driven(balances=True)
    driven.sizes_bytes = {partition: 10**9 if partition.key_group % 3 else 2 * 10**6 for partition in COUNTS}
    shipped = []
    while not driven.emitted(MoveEnded):
        for running in list(driven.state.jobs.values()):
            shipped += [ship.partition for ship in running.job.ships if running.job.is_shipping_only]
            driven.finish(running.job)
    assert set(shipped) == {COUNTS[0], COUNTS[3]}


def after_restart(drained: frozenset[str], **domains: str) -> JobState:
    """A new driver's state, with nodes in these failure domains."""
    graph = Graph({p: frozenset[Partition]() for p in COUNTS}, {str(p): QueryNeed(1, frozenset((p,))) for p in COUNTS})
    members = {NodeId(node): Member(1.0, domain) for node, domain in domains.items()}
    description = Description("job", "test", 2, {}, 6, {})
    return first_state(Settings(), description, Strategy("incremental"), graph, members, Found(drained=drained))


def test_a_new_driver_puts_nothing_on_what_was_drained_until_it_has_gone() -> None:
    """Executors have other numbers then, and may come late; one that goes and comes back is used."""
    state = after_restart(frozenset({"host-b"}), n1="host-a", n2="host-b")
    assert state.draining == {N2} and state.recovery.capacity[N2] == 0.0
    state, _ = handle(state, NodesChanged(joined={N3: Member(1.0, "host-b")}), 1.0)
    assert state.draining == {N2, N3} and state.recovery.capacity[N3] == 0.0
    state, _ = handle(state, NodesChanged(lost=[N2, N3]), 2.0)
    assert not state.drained and not state.draining
    state, _ = handle(state, NodesChanged(joined={N2: Member(1.0, "host-b")}), 3.0)
    assert state.recovery.capacity[N2] > 0.0


def test_a_new_driver_uses_what_was_drained_if_there_is_nothing_else() -> None:
    """To run is worth more than to wait for a node that may never come."""
    assert not after_restart(frozenset({"host-a"}), n1="host-a").draining


def test_a_drain_is_remembered_once_it_is_done_and_if_nobody_else_is_there() -> None:
    """Not while it is under way, not for scaling's own, and not for a host that other nodes are on."""
    state = after_restart(frozenset(), n1="host-a", n2="host-b", n3="host-b")
    assert draining.domains(replace(state, draining=frozenset({N2}))) == frozenset()
    both = replace(state, draining=frozenset({N2, N3}))
    assert draining.domains(both) == {"host-b"}
    assert draining.domains(replace(both, migration=Migration("r1", "precopy", 0.0, drains=N3))) == frozenset()
    assert draining.domains(replace(both, scaling=replace(both.scaling, releasing=N2))) == frozenset()


def with_copies(driven: Driven, cursor: int) -> Driven:
    """The first two partitions of n1 have copies on n3."""
    copies = {(p, N3): Replica(p, N3, cursor, driven.state.versions[p], Role.COPY) for p in COUNTS[:2]}
    driven.state = replace(driven.state, copies=copies)
    return driven


def test_the_planner_knows_where_copies_lie_and_moves_go_there() -> None:
    """A drain sends what has a copy to that copy's node."""
    driven = with_copies(started(), 1)
    driven.tell(Requested(Drain("r1", N1)))
    driven.finish(driven.job())
    [asked] = [command.problem for command in driven.sent if isinstance(command, PlanMoves)]
    assert {name: part.copies for name, part in asked.partitions.items() if part.copies} == dict.fromkeys(
        map(str, COUNTS[:2]), (N3,)
    )
    [begun] = driven.emitted(MoveStarted)
    assert isinstance(begun, MoveStarted)
    assert [begun.partitions[str(partition)][1] for partition in COUNTS[:2]] == [N3, N3]


def test_a_drain_goes_on_without_copies_where_they_are_in_its_way() -> None:
    """The only node with room is in the failure domain of the copies: emptying the node comes first."""
    nodes = {
        "n1": MoveNode(1.0, "a", drains=True),
        "n2": MoveNode(0.1, "b"),
        "n3": MoveNode(1.0, "b"),
    }
    problem = MoveProblem(nodes, {"counts/0": MovePartition("n1", 0.5, copies=("n2",))}, most_moves=0)
    assert answered(1, problem).moves == {"counts/0": N3}


@pytest.mark.parametrize(("age", "is_shipped_first"), [(1, False), (9, True)])
def test_an_old_copy_is_refreshed_before_the_switch_and_a_new_one_with_it(age: int, is_shipped_first: bool) -> None:
    """What the switch itself ships is what few epochs changed."""
    driven = started()
    for _ in range(10):
        driven.finish(driven.job())
    driven = with_copies(driven, driven.state.recovery.head - age)
    driven.tell(Requested(Move("r1", "counts", N3, [0])))
    driven.finish(driven.job())
    assert any(running.job.is_shipping_only for running in driven.state.jobs.values()) is is_shipped_first


def test_what_one_job_refreshes_is_bounded_by_what_the_last_refresh_sent() -> None:
    """Large changes go in several jobs, one after the other; of each partition one copy."""
    driven = started()
    settings = replace(driven.state.settings, copying=CopySettings(copies=1, every=2))
    copies = {(p, N3): Replica(p, N3, 1, driven.state.versions[p], Role.COPY) for p in COUNTS}
    copying = replace(driven.state.copying, targets=dict.fromkeys(COUNTS, (N3,)))
    driven.state = replace(driven.state, settings=settings, copies=copies, copying=copying)
    shipped: list[list[Partition]] = []
    for _ in range(12):
        for running in list(driven.state.jobs.values()):
            if running.job.is_shipping_only:
                shipped.append([ship.partition for ship in running.job.ships])
            driven.finish(running.job, shipped_bytes=MOST_BYTES // 3)
    assert shipped[0] == COUNTS, "nothing is known of the first one"
    assert shipped[1:4] == [COUNTS[:3], COUNTS[3:], COUNTS[:3]]


def test_a_partition_that_catches_up_after_a_direct_move_keeps_what_it_changes_for_its_copies() -> None:
    """Otherwise the next refresh of every copy that its node feeds would ship whole states."""
    driven = started()
    settings = replace(driven.state.settings, copying=CopySettings(copies=1))
    copies = {(p, N3): Replica(p, N3, 1, driven.state.versions[p], Role.COPY) for p in COUNTS[1:3]}
    targets = {**dict.fromkeys(COUNTS[1:3], (N3,)), COUNTS[3]: (N3,)}
    driven.state = replace(
        driven.state, settings=settings, copies=copies, copying=replace(driven.state.copying, targets=targets, question=99)
    )
    driven.tell(Requested(Move("r1", "counts", N2, [0], DIRECT)))
    kept: list[int | None] = []
    for _ in range(8):
        for running in list(driven.state.jobs.values()):
            # The live epochs that it misses while it is shipped are caught up with on its new node.
            kept += [task.keep_after for task in running.job.tasks if (task.partition, task.node) == (COUNTS[0], N2)]
            driven.finish(running.job)
    assert kept and None not in kept


def test_the_planner_is_not_asked_again_soon_after_it_found_nothing() -> None:
    """One partition has nearly all load: uneven, and once its neighbours have left nothing helps."""
    driven = Driven(balances=True)
    costs = {partition: 0.5 if index == 0 else 0.01 for index, partition in enumerate(COUNTS)}
    driven.state = priced(replace(driven.state, costs=costs))
    asked = []
    for _ in range(60):
        for running in list(driven.state.jobs.values()):
            driven.finish(running.job)
        asked.append(sum(isinstance(command, PlanMoves) for command in driven.sent))
    assert 1 <= asked[-1] <= 3
