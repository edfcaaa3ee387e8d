"""Data of the kind that real machines and published benchmarks give: seeded, small, made here."""

import random
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from resurge.planning.recovery_schedule import Query, RecoveryProblem

START = datetime(2024, 1, 1)
STATES = ("or", "id", "ca", "wa", "az")
CITIES = ("boise", "portland", "bend", "phoenix", "kent")


def knapsack_problem(seed: int, queries: int = 40, partitions: int = 40, density: float = 0.1) -> RecoveryProblem:
    """A set-union knapsack: every query needs each partition with a probability, and 85 % of the cost fits."""
    rng = random.Random(seed)
    costs = {f"p{index}": rng.randint(1, 500) for index in range(partitions)}
    names = list(costs)
    wanted = {
        f"q{index}": Query(rng.randint(1, 500), [name for name in names if rng.random() < density] or [rng.choice(names)])
        for index in range(queries)
    }
    return RecoveryProblem(int(0.85 * sum(costs.values())), costs, wanted)


def application_graph(seed: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Operators of a streaming application: a few sources, layers of steps, some short cuts, sinks."""
    rng = random.Random(seed)
    layers = [[f"l{layer}-{index}" for index in range(rng.randint(1, 4))] for layer in range(rng.randint(3, 7))]
    edges: dict[tuple[str, str], None] = {}
    for depth, layer in enumerate(layers[1:], 1):
        for name in layer:
            for above in rng.sample(layers[depth - 1], rng.randint(1, len(layers[depth - 1]))):
                edges[above, name] = None
            if depth > 1 and rng.random() < 0.3:
                edges[rng.choice(layers[rng.randrange(depth - 1)]), name] = None
    return [name for layer in layers for name in layer], list(edges)


def write_failures(path: Path, seed: int, nodes: int = 64, bursts: int = 40) -> Path:
    """Failures with start and repair, many nodes in the same minute, as two large clusters logged theirs."""
    rng = random.Random(seed)
    lines = ["system,node,start,end,down_minutes,cause,nodes_in_system,same_event"]
    moment = START
    for _ in range(bursts):
        moment += timedelta(minutes=rng.expovariate(1 / 600) + 1)
        size = min(nodes, rng.choice((1, 1, 1, 2, 3, 8, 20)))
        for node in rng.sample(range(nodes), size):
            minutes = int(rng.lognormvariate(4, 1)) + 1
            end = moment + timedelta(minutes=minutes)
            row = (18, node, moment.isoformat(timespec="seconds"), end.isoformat(timespec="seconds"), minutes)
            lines.append(",".join(map(str, (*row, "Hardware", nodes, "Yes" if size > 1 else "No"))))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_spot_cluster(path: Path, seed: int, machines: int = 24, changes: int = 120) -> Path:
    """Machines that are given and taken, in milliseconds, as a spot market does."""
    rng = random.Random(seed)
    running: list[int] = list(range(machines // 2))
    spare = list(range(machines // 2, machines))
    lines = [f"0,add,node{machine}" for machine in running]
    at_ms = 0
    for _ in range(changes):
        at_ms += int(rng.expovariate(1 / 300_000)) + 1
        if spare and (not running or rng.random() < 0.5):
            running.append(spare.pop(rng.randrange(len(spare))))
            lines.append(f"{at_ms},add,node{running[-1]}")
        else:
            for _ in range(min(len(running), rng.choice((1, 1, 2, 4)))):
                spare.append(running.pop(rng.randrange(len(running))))
                lines.append(f"{at_ms},remove,node{spare[-1]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_start_up_times(path: Path, seed: int, machines: int = 500) -> Path:
    """Seconds until a machine is up: a median of 43 s and a long tail."""
    rng = random.Random(seed)
    path.write_text("seconds\n" + "\n".join(f"{rng.lognormvariate(3.76, 0.6):.2f}" for _ in range(machines)) + "\n")
    return path


def write_auctions(folder: Path, seed: int, people: int = 30, auctions: int = 60, bids: int = 200) -> Path:
    """person.csv, auction.csv and bid.csv of an auction house, with the columns of the Nexmark benchmark."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)

    def moments(count: int) -> list[datetime]:
        return sorted(START + timedelta(milliseconds=rng.randrange(20_000)) for _ in range(count))

    def text() -> str:
        return "".join(rng.choices("abcdefghij ", k=rng.randint(1, 12))).strip() or "x"

    persons = [
        (1000 + n, text(), f"{text()}@x.com", "0000 1111", rng.choice(CITIES), rng.choice(STATES), at, text())
        for n, at in enumerate(moments(people))
    ]
    columns = ["id", "name", "email_address", "credit_card", "city", "state", "date_time", "extra"]
    _write(persons, columns, folder / "person.csv")
    lots = []
    for number, at in enumerate(moments(auctions)):
        expires = at + timedelta(seconds=rng.randint(1, 12))
        prices = (rng.randrange(1000), rng.randrange(2000))
        lots.append((1000 + number, text(), text(), *prices, at, expires, rng.choice(persons)[0], rng.randint(10, 14), text()))
    columns = ["id", "item_name", "description", "initial_bid", "reserve", "date_time", "expires", "seller", "category", "extra"]
    _write(lots, columns, folder / "auction.csv")
    offers = [
        (rng.choice(lots)[0], rng.choice(persons)[0], rng.randrange(1, 10**8), "Apple", "https://x.com", at, text())
        for at in moments(bids)
    ]
    columns = ["auction", "bidder", "price", "channel", "url", "date_time", "extra"]
    _write(offers, columns, folder / "bid.csv")
    return folder


def _write(rows: list[tuple[object, ...]], columns: list[str], path: Path) -> None:
    pl.DataFrame(rows, schema=columns, orient="row").write_csv(path, datetime_format="%Y-%m-%d %H:%M:%S%.3f")
