"""Measure what the documents quote: run the kept benchmarks one after another, then redraw the pictures and requote the figures.

python scripts/measure.py                 every benchmark and study whose result is not of the code as it is now
python scripts/measure.py state growth    only these
python scripts/measure.py --again         also those that are up to date
python scripts/measure.py --list          what there is, how long it takes, and whether it is up to date

It can be stopped and started again: what was measured with the same code is not measured twice. The working tree must be
committed, as every result names its commit. Names of groups: benchmarks (the default), chaos, figures, crashes, soak, all.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draw_pictures import draw_all
from quote_results import RESULTS, ROOT, is_kept, load, quote_all

from resurge.benchmarks.results import commit

RESURGE = Path(sys.executable).with_name("resurge")
MEASURED = ("src", "pyproject.toml", "requirements.txt")
SERVICES = "scripts/services.sh"


@dataclass(frozen=True)
class Measurement:
    """One result file: the command that writes it (its `--out` is added), and about how long that takes."""

    name: str
    command: str
    minutes: float
    group: str = "benchmarks"
    needs_servers: bool = False
    option: str = "--out"

    @property
    def path(self) -> Path:
        """The result file."""
        return RESULTS / f"{self.name}.json"

    @property
    def words(self) -> list[str]:
        """The command as it is run; what is not a module of Python is a command of resurge."""
        words = [*self.command.split(), self.option, str(self.path.relative_to(ROOT))]
        return [sys.executable, *words] if words[0] == "-m" else [str(RESURGE), *words]

    def is_current(self) -> bool:
        """Whether the result was measured with the same command and the code as it is now."""
        if not is_kept(self.name):
            return False
        found = load(self.name)
        if self.command.removeprefix("-m ") not in found["command"]:
            return False
        changed = ["git", "-C", str(ROOT), "diff", "--quiet", found["commit"].split()[0], "HEAD", "--", *MEASURED]
        return " " not in found["commit"] and subprocess.run(changed, capture_output=True, check=False).returncode == 0


FAILURE = "study correlated-failure --nodes 10 --kill 8"
LARGE_FAILURE = "study correlated-failure --nodes 1000 --kill 800 --partitions 10000"
MEASUREMENTS = (
    Measurement("growth", "bench growth", 1),
    Measurement("cluster-growth", "bench growth --nodes 4", 1),
    Measurement("slots", "bench slots", 1),
    Measurement("state", "bench state", 1.5),
    Measurement("driver", "bench driver", 2),
    Measurement(
        "correlated-failure-simulated", f"{FAILURE} --arrive-to 30 --simulated --figures strategies", 0.5, option="--result"
    ),
    Measurement(
        "correlated-failure-large", f"{LARGE_FAILURE} --simulated --strategies incremental,blocking", 4, option="--result"
    ),
    Measurement("connectors", "bench connectors --rows 2000000", 3, needs_servers=True),
    Measurement("balance", "bench balance", 6),
    Measurement("migration", "study migration --rows 200000,2000000", 5, option="--result"),
    Measurement("checkpoint-placement", "study checkpoint-placement --real", 6, option="--result"),
    Measurement("elastic", "bench elastic", 3),
    Measurement("throughput", "bench throughput", 13),
    Measurement("latency", "bench latency --seconds 20", 9),
    Measurement("correlated-failure", f"{FAILURE} --arrive-to 30", 16, option="--result"),
    Measurement("chaos-kill", "chaos --seeds 20 --faults kill", 8, "chaos"),
    Measurement("chaos-cut", "chaos --seeds 20 --faults cut", 10, "chaos"),
    Measurement("chaos-hang", "chaos --seeds 20 --faults hang", 10, "chaos"),
    Measurement(
        "correlated-failure-figures",
        f"{FAILURE} --figures places,kills,turns,overload,overhead",
        53,
        "figures",
        option="--result",
    ),
    Measurement("connector-crashes", "-m tests.support.connector_crashes --kills 20", 25, "crashes", needs_servers=True),
    Measurement("soak", "soak --hours 1", 62, "soak"),
)


def chosen(names: Sequence[str]) -> list[Measurement]:
    """The measurements of some names and groups."""
    known = {measurement.name for measurement in MEASUREMENTS} | {measurement.group for measurement in MEASUREMENTS} | {"all"}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"unknown: {unknown[0]}; expected some of {', '.join(sorted(known))}")
    wanted = set(names or ["benchmarks"])
    return [found for found in MEASUREMENTS if "all" in wanted or {found.name, found.group} & wanted]


def servers() -> dict[str, str]:
    """Start Kafka and PostgreSQL, and the settings by which benchmarks find them."""
    told = subprocess.run(["bash", SERVICES, "start"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    subprocess.run(["bash", SERVICES, "jars", "spark-kafka"], cwd=ROOT, check=True)
    pairs = (line.removeprefix("export ").partition("=") for line in told.splitlines() if line.startswith("export "))
    return {name: value.strip("\"'") for name, _, value in pairs}


def measure(measurement: Measurement) -> bool:
    """Run one command; whether it succeeded. Pictures and documents are brought up to date at once."""
    began = time.monotonic()
    print(f"{measurement.name}: about {measurement.minutes:g} minutes", flush=True)
    environment = {**os.environ, **(servers() if measurement.needs_servers else {})}
    done = subprocess.run(measurement.words, cwd=ROOT, env=environment, check=False)
    print(f"{measurement.name}: {(time.monotonic() - began) / 60:.1f} minutes, exit code {done.returncode}", flush=True)
    draw_all()
    quote_all()
    return done.returncode == 0


def main() -> None:
    """Measure what is asked for and not up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="measurements or groups")
    parser.add_argument("--again", action="store_true", help="measure also what is up to date")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    given = parser.parse_args()
    wanted = chosen(given.names or (["all"] if given.list else []))
    if given.list:
        for found in wanted:
            print(f"{found.group:11} {found.name:29} {found.minutes:5g} min  {'up to date' if found.is_current() else 'to do'}")
        return
    if " " in commit():
        raise SystemExit(f"the working tree is at {commit()}; expected a commit, which every result names: commit first")
    left = [found for found in wanted if given.again or not found.is_current()]
    print(f"{len(left)} to do, about {sum(found.minutes for found in left):g} minutes", flush=True)
    failed = [found.name for found in left if not measure(found)]
    if any(found.needs_servers for found in left):
        subprocess.run(["bash", SERVICES, "stop"], cwd=ROOT, check=False)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; run the same command again to repeat only these")


if __name__ == "__main__":
    main()
