"""What goes wrong, and when: schedules drawn from a seed, or taken from real traces of failures and of node arrival."""

import csv
import gzip
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from io import StringIO
from pathlib import Path

EVERYTHING = 10**9


class Choice(Enum):
    """Which nodes die."""

    ANY = "any"
    NEWEST = "the newest"
    ONE_DOMAIN = "of one failure domain"


class Moment(Enum):
    """When exactly, counted from the fault's time on."""

    AT_ONCE = "at once"
    IN_A_JOB = "in the middle of a job"
    IN_RECOVERY = "while partitions catch up"


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
class Arrive:
    """A machine starts; a label lets a trace kill it later."""

    at_s: float
    label: str = ""


@dataclass(frozen=True)
class RestartDriver:
    """The driver dies and another takes over; its newest commit may have been logged without being shown."""

    at_s: float
    unshown: bool = False


Fault = Kill | KillNamed | Arrive | RestartDriver


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
    for _ in range(rng.randint(1, 5)):
        at_s = rng.uniform(0.5, until_s)
        faults += rng.choice((_few, _many, _rack, _all, _flapping, _second_strike, _driver))(rng, nodes, at_s)
    return Schedule.of(faults)


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
    return [*killed, RestartDriver(at_s + rng.uniform(0.0, 4.0), rng.random() < 0.5)]


# Traces


def lanl_schedule(path: Path, nodes: int, failures: int, until_s: float, rng: random.Random) -> Schedule:
    """Consecutive failures of a large cluster with their repairs, from a random point on, scaled into a time."""
    rows = list(_rows(path))
    first = rng.randrange(max(1, len(rows) - failures))
    taken = rows[first : first + failures]
    starts = [datetime.fromisoformat(row["start"]).timestamp() for row in taken]
    ends = [max(start, datetime.fromisoformat(row["end"]).timestamp()) for row, start in zip(taken, starts, strict=True)]
    scale = until_s / max(1.0, max(starts) - min(starts))
    faults: list[Fault] = []
    for row, start, end in zip(taken, starts, ends, strict=True):
        at_s = (start - min(starts)) * scale
        # Many nodes of the real cluster share one of ours; each failure brings a machine of its own back.
        faults += [KillNamed(at_s, f"n{int(row['node']) % nodes}"), Arrive(min(at_s + (end - start) * scale, until_s))]
    return Schedule.of(faults)


def spot_schedule(path: Path, until_s: float, most_nodes: int) -> Schedule:
    """Machines added to and taken from a spot cluster, scaled into a time; labels beyond the first few are left out."""
    with path.open() as file:
        rows = [(float(row[0]), row[1], row[2]) for row in csv.reader(file) if len(row) == 3]
    labels = list(dict.fromkeys(label for _, _, label in rows))[:most_nodes]
    kept = [row for row in rows if row[2] in labels]
    begins, ends = kept[0][0], kept[-1][0]
    scale = until_s / max(1.0, ends - begins)
    faults: list[Fault] = []
    for at_ms, change, label in kept:
        at_s = (at_ms - begins) * scale
        faults.append(Arrive(at_s, label) if change == "add" else KillNamed(at_s, label))
    return Schedule.of(faults)


def arrival_times_s(path: Path) -> list[float]:
    """Start-up times of machines: the column `seconds` of a table, or one number a line."""
    rows = list(_rows(path))
    if rows and "seconds" in rows[0]:
        return [float(row["seconds"]) for row in rows]
    return [float(line) for line in _text(path).split()]


def drawn_arrivals_s(times_s: Sequence[float], count: int, rng: random.Random) -> list[float]:
    """Some of the known start-up times, earliest first."""
    return sorted(rng.choice(times_s) for _ in range(count))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(StringIO(_text(path)))


def _text(path: Path) -> str:
    if path.suffix == ".gz":
        with gzip.open(path, "rt") as file:
            return file.read()
    return path.read_text()
