"""What goes wrong, and when: schedules given, or drawn from a seed."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from resurge.coordinator.inputs import ENGINE_FAILED, MISPLACED
from resurge.model.names import NodeId
from resurge.protocols.recovery import RecoveryState

EVERYTHING = 10**9


class Choice(Enum):
    """Which nodes die."""

    ANY = "any"
    NEWEST = "the newest"
    ONE_DOMAIN = "of one failure domain"
    MOVING = "between which state moves"


class Moment(Enum):
    """When exactly, counted from the fault's time on."""

    AT_ONCE = "at once"
    IN_A_JOB = "in the middle of a job"
    IN_RECOVERY = "while partitions catch up"
    IN_A_MOVE = "while partitions move"


@dataclass(frozen=True)
class Kill:
    """Nodes die together."""

    at_s: float
    count: int = 1
    choice: Choice = Choice.ANY
    moment: Moment = Moment.AT_ONCE


@dataclass(frozen=True)
class KillNamed:
    """One certain machine dies."""

    at_s: float
    label: str


@dataclass(frozen=True)
class KillChosen:
    """Nodes die that a function chooses when the first of them dies: all at once, or the one whose turn it is."""

    at_s: float
    choose: Callable[[RecoveryState], Sequence[NodeId]]
    turn: int | None = None


@dataclass(frozen=True)
class Arrive:
    """A machine starts; a label lets a trace kill it later."""

    at_s: float
    label: str = ""


@dataclass(frozen=True)
class RestartDriver:
    """The driver dies, at once or after so many more commands, and another takes over."""

    at_s: float
    after_commands: int | None = None


@dataclass(frozen=True)
class StallDriver:
    """The driver stands still for a while; if it is replaced meanwhile, there are two of them when it goes on."""

    at_s: float
    for_s: float
    is_replaced: bool = False


@dataclass(frozen=True)
class FailJobs:
    """The next jobs fail though no node is lost."""

    at_s: float
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class CutOff:
    """Nodes cannot be reached for a while; they go on working, and come back under the same names."""

    at_s: float
    count: int
    for_s: float


@dataclass(frozen=True)
class Slow:
    """Nodes take so many times as long as usual, for a while."""

    at_s: float
    count: int
    factor: float
    for_s: float


class Wanted(Enum):
    """What a user asks for."""

    MOVE = "some key groups on another node"
    MOVE_DIRECTLY = "some key groups on another node, all at once"
    MOVE_BY_CPA = "some key groups on another node, which catches up while they pause"
    MOVE_BY_CPAL = "some key groups on another node, which catches up while they go on"
    DRAIN = "a node without partitions"
    RELEASE = "a node without partitions, which then goes"
    BALANCE = "even load"
    DRY_RUN = "what a balance would do"
    SCALE = "another number of nodes"


WANTED = tuple(wanted for wanted in Wanted if wanted is not Wanted.SCALE)
"""What may be asked of any job; the number of nodes only of one that scales."""


@dataclass(frozen=True)
class Ask:
    """A user asks for a change of placement; a chance of its own chooses what exactly."""

    at_s: float
    wanted: Wanted
    seed: int


Fault = Ask | Kill | KillNamed | KillChosen | Arrive | RestartDriver | StallDriver | FailJobs | CutOff | Slow


@dataclass(frozen=True)
class Schedule:
    """Faults in order of time, and when they have all happened."""

    faults: tuple[Fault, ...] = field(default=())
    ends_s: float = 0.0

    @classmethod
    def of(cls, faults: Iterable[Fault]) -> "Schedule":
        """Faults in order of time."""
        ordered = tuple(sorted(faults, key=lambda fault: fault.at_s))
        return cls(ordered, ordered[-1].at_s if ordered else 0.0)


def random_schedule(rng: random.Random, nodes: int, until_s: float) -> Schedule:
    """One to five disasters of any kind within a time, most of them followed by replacements."""
    faults: list[Fault] = []
    kinds = (_few, _many, _rack, _all, _flapping, _second_strike, _driver, _stall, _failing_jobs, _cut, _slow, _exchange)
    for _ in range(rng.randint(1, 5)):
        at_s = rng.uniform(0.5, until_s)
        faults += rng.choice(kinds)(rng, nodes, at_s)
    return Schedule.of(endurable(faults))


def endurable(faults: Iterable[Fault]) -> list[Fault]:
    """The faults with one burst of failing jobs at most: more failures in a row than a driver tries again end it, and rightly so."""
    kept, has_failing = list[Fault](), False
    for fault in faults:
        if not (has_failing and isinstance(fault, FailJobs)):
            kept.append(fault)
        has_failing |= isinstance(fault, FailJobs)
    return kept


def _replacements(rng: random.Random, count: int, at_s: float) -> list[Fault]:
    return [Arrive(at_s + rng.uniform(0.0, 8.0)) for _ in range(count) if rng.random() < 0.8]


def _moment(rng: random.Random) -> Moment:
    return rng.choice((Moment.AT_ONCE, Moment.IN_A_JOB, Moment.IN_A_JOB, Moment.IN_RECOVERY))


def _few(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    return [Kill(at_s, 1, Choice.ANY, _moment(rng)), *_replacements(rng, 1, at_s)]


def _many(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    count = rng.randint(1, nodes)
    return [Kill(at_s, count, Choice.ANY, _moment(rng)), *_replacements(rng, count, at_s)]


def _rack(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    return [Kill(at_s, EVERYTHING, Choice.ONE_DOMAIN, _moment(rng)), *_replacements(rng, nodes // 2, at_s)]


def _all(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    return [Kill(at_s, EVERYTHING), *_replacements(rng, nodes, at_s)]


def _flapping(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    """A node comes and dies again, several times."""
    faults: list[Fault] = [Kill(at_s)]
    for turn in range(rng.randint(1, 3)):
        faults += [Arrive(at_s + 1.5 * turn + 0.5), Kill(at_s + 1.5 * turn + rng.uniform(0.6, 2.0), 1, Choice.NEWEST)]
    return faults


def _second_strike(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    """More nodes die while the first failure is being recovered from."""
    count = rng.randint(1, max(1, nodes // 2))
    later = [Kill(at_s + 0.5, rng.randint(1, 2), Choice.ANY, Moment.IN_RECOVERY) for _ in range(rng.randint(1, 3))]
    return [Kill(at_s, count), *later, *_replacements(rng, count + len(later), at_s)]


def _driver(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    killed: list[Fault] = [Kill(at_s, rng.randint(1, nodes)), Arrive(at_s + 1.0)] if rng.random() < 0.5 else []
    return [*killed, RestartDriver(at_s + rng.uniform(0.0, 4.0), rng.choice((None, *range(8))))]


def _stall(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    """A driver stands still, alone or while nodes die, and may find that another has taken over."""
    killed: list[Fault] = [Kill(at_s + rng.uniform(-0.3, 2.0), rng.randint(1, nodes)), Arrive(at_s + 1.0)]
    stall = StallDriver(at_s, rng.uniform(0.2, 8.0), rng.random() < 0.5)
    return [stall, *(killed if rng.random() < 0.5 else [])]


def _failing_jobs(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    return [FailJobs(at_s, tuple(rng.choice((ENGINE_FAILED, MISPLACED)) for _ in range(rng.randint(1, 3))))]


def _cut(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    """For a moment that nobody notices, or for long; some are lost meanwhile."""
    cut = CutOff(at_s, rng.randint(1, nodes), rng.choice((0.1, 1.0, 4.0, 8.0)))
    return [cut, *([Kill(at_s + rng.uniform(0.0, 4.0))] if rng.random() < 0.3 else [])]


def _slow(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    return [Slow(at_s, rng.randint(1, nodes), rng.choice((2.0, 10.0)), rng.uniform(1.0, 8.0))]


def _exchange(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    """Machines come and go at the same instant."""
    return [*(Arrive(at_s) for _ in range(rng.randint(1, 2))), Kill(at_s, rng.randint(1, nodes), moment=Moment.AT_ONCE)]


def random_requests(rng: random.Random, nodes: int, until_s: float) -> list[Fault]:
    """One to six requests of any kind; most meet a failure: of the nodes between which state moves, or of the driver."""
    faults: list[Fault] = []
    for _ in range(rng.randint(1, 6)):
        at_s = rng.uniform(0.5, until_s)
        faults.append(Ask(at_s, rng.choice(WANTED), rng.randrange(10**6)))
        faults += rng.choice((_nothing, _arrivals, _kill_moving, _kill_moving, _driver, _failing_jobs, _cut))(rng, nodes, at_s)
    return faults


def _nothing(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    return []


def _arrivals(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    return [Arrive(at_s - 0.4 + rng.uniform(0.0, 2.0)) for _ in range(rng.randint(1, 2))]


def _kill_moving(rng: random.Random, nodes: int, at_s: float) -> list[Fault]:
    """The source, the target or both."""
    count = rng.randint(1, 2)
    return [Kill(at_s + 0.01, count, Choice.MOVING, Moment.IN_A_MOVE), *_replacements(rng, count, at_s)]
