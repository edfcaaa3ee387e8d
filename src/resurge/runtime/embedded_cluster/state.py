"""What is known of an embedded cluster: its nodes and processes, as plain data that is kept in a file."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from resurge.errors import ClusterError
from resurge.model.sizes import size_bytes
from resurge.runtime.driver.session import HEARTBEAT_TIMEOUT_S
from resurge.runtime.embedded_cluster.processes import ProcessId

STATE_FILE = "cluster.json"
LEAST_MEMORY_BYTES = 450 * 1024**2
# Enough to look into a failure of many nodes; a cluster whose nodes die for weeks must not fill the disk with their logs.
DEAD_NODES_KEPT = 8


@dataclass(frozen=True)
class NodeInfo:
    """A node as its user sees it; `cpu_share` is the part of a core's speed that its tasks get."""

    name: str
    domain: str
    cpu_share: float
    worker_pid: int
    is_alive: bool


class NodeSpec(msgspec.Struct, frozen=True):
    """A node to start."""

    name: str
    domain: str
    cpu_share: float


class NodeRecord(msgspec.Struct, frozen=True):
    """A node that was started, dead or alive."""

    spec: NodeSpec
    worker: ProcessId


class ClusterState(msgspec.Struct, frozen=True):
    """A cluster that was started. `mark` is in the environment of every process of it, `started` counts nodes, dead ones too.

    `network` names the namespaces where each node has a host of its own. Only who knows the `secret` can join or run jobs.
    """

    mark: str
    master_url: str
    master: ProcessId
    cores_per_node: int
    memory: str
    started: int = 0
    nodes: list[NodeRecord] = []
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    network: str | None = None
    secret: str = ""

    def with_nodes(self, added: Sequence[NodeRecord]) -> "ClusterState":
        """The same cluster after nodes were started; names are never used twice."""
        return msgspec.structs.replace(self, nodes=[*self.nodes, *added], started=self.started + len(added))

    def named(self, names: Sequence[str]) -> list[NodeRecord]:
        """The nodes of these names, or an error that tells which there are."""
        known = {node.spec.name: node for node in self.nodes}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ClusterError(f"there is no node {', '.join(unknown)}; expected one of {', '.join(known) or '(no nodes)'}")
        return [known[name] for name in dict.fromkeys(names)]


def node_specs(
    count: int, cpu_share: float | Sequence[float] = 1.0, domains: Sequence[str] | None = None, *, started: int = 0
) -> list[NodeSpec]:
    """Names, domains and shares of new nodes; a node without a domain is one by itself.

    >>> node_specs(2, cpu_share=0.5, domains=["r1", "r2"], started=3)
    [NodeSpec(name='node-4', domain='r1', cpu_share=0.5), NodeSpec(name='node-5', domain='r2', cpu_share=0.5)]
    """
    names = [f"node-{started + index + 1}" for index in range(_at_least(count, 0, "nodes"))]
    shares = [float(cpu_share)] * count if isinstance(cpu_share, int | float) else [float(share) for share in cpu_share]
    domains = names if domains is None else list(domains)
    for what, values in (("cpu shares", shares), ("domains", domains)):
        if len(values) != count:
            raise ClusterError(f"{len(values)} {what} were given for {count} nodes; expected one for each node")
    for share in shares:
        if not 0 < share <= 1:
            raise ClusterError(f"a cpu share is more than 0 and at most 1, got {share:g}; 0.5 makes a node half as fast")
    return [NodeSpec(*values) for values in zip(names, domains, shares, strict=True)]


def checked_memory(memory: str, cores_per_node: int) -> str:
    """The memory of a node, if an executor can run in it."""
    _at_least(cores_per_node, 1, "cores per node")
    found = re.fullmatch(r"(\d+)([kmg])b?", memory.lower())
    if found is None:
        raise ClusterError(f"a node's memory is a number with a unit, such as 700m or 2g, got {memory!r}")
    if size_bytes(memory) < LEAST_MEMORY_BYTES:
        raise ClusterError(f"a Spark executor needs at least 450m of memory, got {memory!r}; 700m suits small jobs")
    return f"{found[1]}{found[2]}"


def _at_least(value: int, least: int, what: str) -> int:
    if value < least:
        raise ClusterError(f"expected at least {least} {what}, got {value}")
    return value


def default_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where a cluster that outlives its command is kept."""
    environment = os.environ if environment is None else environment
    cache = environment.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(cache) / "resurge" / "cluster"


def read_state(folder: Path) -> ClusterState | None:
    """The cluster kept in a folder, running or not; None if there is none."""
    path = folder / STATE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, OSError) as error:
        raise ClusterError(f"cannot read {path}: {error}; if no cluster runs, remove the file") from error


def write_state(folder: Path, state: ClusterState) -> None:
    """Keep a cluster; whoever reads meanwhile sees the old state or the new one."""
    temporary = folder / f".{STATE_FILE}.tmp"
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
    temporary.replace(folder / STATE_FILE)


def without_old_dead(folder: Path, state: ClusterState) -> ClusterState:
    """Forget all but the newest dead nodes, with their logs."""
    dead = [node for node in state.nodes if node.worker.find() is None][:-DEAD_NODES_KEPT]
    for node in dead:
        shutil.rmtree(folder / node.spec.name, ignore_errors=True)
        (folder / f"{node.spec.name}.log").unlink(missing_ok=True)
    return msgspec.structs.replace(state, nodes=[node for node in state.nodes if node not in dead])


def remove_state(folder: Path) -> None:
    """Forget a cluster."""
    (folder / STATE_FILE).unlink(missing_ok=True)
