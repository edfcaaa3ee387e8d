"""Kill drivers and nodes of a real cluster, and restart servers, while a job runs between Kafka and each sink.

python -m tests.support.connector_crashes [--kills 20] [--seed 1] [--connectors kafka,postgres,delta,iceberg] [--out FILE]

Every connector has a run of its own on a cluster of two nodes. Three random nodes die one after another and are replaced, then
the driver dies, and so on. After a third of the kills the database is killed and started again, after two thirds the broker. At the end the
server's own view is compared with what the input says, row for row.
"""

import argparse
import random
import secrets
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from resurge.benchmarks.results import keep
from resurge.runtime.embedded_cluster.cluster import EmbeddedCluster
from resurge.telemetry.events import EpochFinished
from resurge.telemetry.log import read_events
from tests.support import connector_job, services
from tests.support.connector_job import CONNECTORS, Settings
from tests.support.processes import kill_group, process, wait_until

NODES = 2
NODE_KILLS_PER_DRIVER = 3
ROWS_PER_EPOCH = 60


def finished_epochs(folder: Path) -> int:
    """Committed epochs so far."""
    path = folder / "telemetry.jsonl"
    return sum(isinstance(event, EpochFinished) for event in read_events(path)) if path.exists() else 0


class CrashRun:
    """One connector's run."""

    def __init__(self, folder: Path, connector: str, kills: int, seed: int) -> None:
        self.folder, self.connector, self.kills = folder, connector, kills
        self.rng = random.Random(f"{connector} {seed}")
        name = f"crashes_{secrets.token_hex(3)}"
        # A pause between epochs, so that the input lasts until the last kill.
        self.settings = Settings(
            services.address("kafka"), services.postgres_dsn(), name, kills * 250, ROWS_PER_EPOCH, interval_s=0.2, seed=seed
        )
        self.counts = {"driver": 0, "node": 0}
        self.restarted: list[str] = []

    def run(self) -> dict[str, Any]:
        """Kill until all kills are done, let the job end, compare."""
        began = time.monotonic()
        connector_job.prepare(self.folder, self.settings, self.connector)
        log = self.folder / "process.log"
        with EmbeddedCluster(NODES) as cluster:
            command = ("tests.support.connector_job", str(self.folder), cluster.master_url, self.connector)
            done = 0
            while True:
                with process(*command, log=log) as driver:
                    done = self._kill_nodes(cluster, driver, done)
                    if done >= self.kills:
                        if driver.wait(timeout=600) != 0:
                            raise RuntimeError(log.read_text()[-3000:])
                        break
                    kill_group(driver)
                self.counts["driver"] += 1
                done += 1
                print(f"{self.connector}: {done} of {self.kills} kills, {finished_epochs(self.folder)} epochs", flush=True)
        found = connector_job.differences(self.folder, self.settings, self.connector)
        kills = {f"{who}_kills": count for who, count in self.counts.items()}
        took_s = round(time.monotonic() - began)
        return {
            **kills,
            "servers_restarted": len(self.restarted),
            "epochs": finished_epochs(self.folder),
            "took_s": took_s,
            **found,
        }

    def _kill_nodes(self, cluster: EmbeddedCluster, driver: Any, done: int) -> int:
        """Under one driver: some nodes die and are replaced, perhaps a server restarts; then it is the driver's turn."""
        for _ in range(NODE_KILLS_PER_DRIVER):
            self._wait(driver, self.rng.randint(1, 3))
            self._restart_servers(done)
            if done >= self.kills:
                return done
            alive = [node.name for node in cluster.nodes() if node.is_alive]
            cluster.kill(self.rng.choice(sorted(alive)))
            cluster.add(1)
            self.counts["node"] += 1
            done += 1
            time.sleep(self.rng.uniform(0, 1))
        if done < self.kills:
            self._wait(driver, self.rng.randint(1, 3))
            time.sleep(self.rng.uniform(0, 0.5))
        return done

    def _restart_servers(self, done: int) -> None:
        for service, due in (("postgres", self.kills // 3), ("kafka", self.kills * 2 // 3)):
            if done >= due and service not in self.restarted:
                services.restart(service)
                self.restarted.append(service)

    def _wait(self, driver: Any, epochs: int) -> None:
        enough = finished_epochs(self.folder) + epochs
        wait_until(lambda: finished_epochs(self.folder) >= enough or driver.poll() is not None, f"{enough} epochs", 300)
        # One that has come to the end of the input is fine; one that failed would make all later kills strike nothing.
        if driver.poll():
            raise RuntimeError((self.folder / "process.log").read_text()[-3000:])


def main() -> None:
    """Run all connectors and keep the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connectors", default=",".join(CONNECTORS))
    parser.add_argument("--out", type=Path, default=Path("out/connector-crashes.json"))
    given = parser.parse_args()
    results: dict[str, Any] = {}
    command = shlex.join(["python", "-m", "tests.support.connector_crashes", *sys.argv[1:]])
    for connector in given.connectors.split(","):
        with tempfile.TemporaryDirectory(prefix="resurge-crashes-") as folder:
            results[connector] = CrashRun(Path(folder), connector, given.kills, given.seed).run()
        print(connector, results[connector], flush=True)
        # After each: a run takes an hour.
        keep({"command": command, "seed": given.seed, "results": results}, given.out)


if __name__ == "__main__":
    main()
