"""The second terminal of orders.py: kills a node of the cluster, adds one, and tells what the job and the table show meanwhile.

python examples/connected/second_terminal.py out/orders
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from orders import DSN, NAME, send

LOG = Path(sys.argv[1]) / "telemetry.jsonl"
CLUSTER = ["--folder", sys.argv[2]] if len(sys.argv) > 2 else []
QUERIES = {"table", "topic"}


def events() -> list[dict[str, Any]]:
    """What the job has told so far: one JSON object a line, of which the last may not be complete yet."""
    lines = LOG.read_text().split("\n")[:-1] if LOG.exists() else []
    return [json.loads(line) for line in lines]


def wait_for(what: str, is_there: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 300
    while not is_there():
        if time.monotonic() > deadline:
            sys.exit(f"no {what} within five minutes; see the first terminal")
        time.sleep(0.2)


def names() -> dict[str, str]:
    """What the user calls each executor."""
    return {event["node"]: event["name"] for event in events() if event["type"] == "NodeNamed"}


def told(kind: str, name: str) -> bool:
    """Whether the job has told this of a node."""
    return any(event["type"] == kind and names().get(event["node"]) == name for event in events())


def down() -> set[str]:
    """Query partitions that produce nothing now."""
    found: set[str] = set()
    for event in events():
        if event["type"] == "QueriesChanged":
            found = (found | set(event["down"])) - set(event["back"])
    return {partition for partition in found if partition.rsplit("/", 1)[0] in QUERIES}


def minutes() -> list[tuple[str, int, int]]:
    """Every minute in the table, with its rows and orders."""
    statement = f"SELECT to_char(window_start, 'HH24:MI'), count(*), sum(n)::int FROM \"{NAME}\" GROUP BY 1 ORDER BY 1"
    with psycopg.connect(DSN) as connection:
        try:
            return connection.execute(statement).fetchall()  # type: ignore[arg-type]
        except psycopg.errors.UndefinedTable:
            return []


def show_table(until: str) -> None:
    """Wait for a minute, then show all of them."""
    wait_for(f"minute {until} in the table", lambda: any(minute == until for minute, _, _ in minutes()))
    for minute, shops, orders in minutes():
        print(f"  {minute}: {shops} shops, {orders} orders", flush=True)


def command(*words: str) -> str:
    """Run a command as a user does, and show it."""
    print("$", *words, flush=True)
    done = subprocess.run([*words, *CLUSTER], check=True, capture_output=True, text=True)
    return done.stdout.strip()


print("the table, with all nodes:")
show_table("12:01")
command("resurge", "cluster", "kill", "node-1")
wait_for("loss of node-1", lambda: told("NodeLost", "node-1"))
wait_for("query that is down", lambda: any(e["type"] == "QueriesChanged" and e["down"] for e in events()))
print("node-1 is lost, and queries that had state there are down; meanwhile orders come in")
send(3)
added = command("resurge", "cluster", "add")
wait_for(f"joining of {added}", lambda: told("NodeJoined", added))
wait_for("recovery", lambda: not down())
print(f"{added} has joined, and every query is back")
print("the table, nothing missing and nothing twice:")
show_table("12:02")
send(4)
print("and on it goes:")
show_table("12:03")
