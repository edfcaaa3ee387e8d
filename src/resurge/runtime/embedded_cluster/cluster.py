"""A real Spark cluster on one machine: standalone master and workers, whose nodes can be killed and added."""

import contextlib
import fcntl
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from resurge.errors import ClusterError
from resurge.runtime.driver.session import HEARTBEAT_TIMEOUT_S, checked_heartbeat_timeout
from resurge.runtime.embedded_cluster import hosts, standalone
from resurge.runtime.embedded_cluster.hosts import MASTER, HostNetwork
from resurge.runtime.embedded_cluster.processes import (
    MARK,
    Guardian,
    ProcessId,
    equalise,
    kill_trees,
    marked,
    pause_all,
    resume_all,
    start_gently,
)
from resurge.runtime.embedded_cluster.state import (
    ClusterState,
    NodeInfo,
    NodeRecord,
    NodeSpec,
    checked_memory,
    node_specs,
    read_state,
    remove_state,
    without_old_dead,
    write_state,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_FILE = "cluster.lock"
LOCAL_FOLDER = "local"
MASTER_ATTEMPTS = 3
START_TIMEOUT_S = 90.0
POLL_S = 0.02
REGISTERED = "Successfully registered with master"


class EmbeddedCluster:
    """A master and some nodes, all on 127.0.0.1; as a context manager, nothing of it is left running afterwards.

    An executor's working directory is `<folder>/<node>/<application>/<executor id>`; daemons log to `<folder>/<node>.log`.
    Jobs take a node that hangs for lost after `heartbeat_timeout_s` seconds; one that is killed is seen at once. With `has_hosts` each node
    has a network namespace of its own, with an address and a memory-backed folder that the others do not see, and its link
    can be cut and healed.
    """

    def __init__(
        self,
        nodes: int = 2,
        *,
        cpu_share: float | Sequence[float] = 1.0,
        domains: Sequence[str] | None = None,
        cores_per_node: int = 1,
        memory: str = "700m",
        heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S,
        folder: Path | str | None = None,
        has_hosts: bool = False,
    ) -> None:
        self._has_hosts = has_hosts
        self._specs = node_specs(nodes, cpu_share, domains)
        self._cores_per_node = cores_per_node
        self._memory = checked_memory(memory, cores_per_node)
        self._heartbeat_timeout_s = checked_heartbeat_timeout(heartbeat_timeout_s)
        self._is_temporary = folder is None
        self.folder = Path(folder if folder is not None else tempfile.gettempdir()).absolute()
        self._guardian: Guardian | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    @classmethod
    def running(cls, folder: Path | str) -> "EmbeddedCluster":
        """The cluster that runs in a folder, whoever started it; it goes on when this object is gone."""
        state = read_state(Path(folder).absolute())
        if state is None or state.master.find() is None:
            raise ClusterError(f"no cluster runs in {folder}; start one with resurge cluster start, or name its folder")
        return cls(
            0,
            cores_per_node=state.cores_per_node,
            memory=state.memory,
            heartbeat_timeout_s=state.heartbeat_timeout_s,
            folder=folder,
        )

    def start(self, *, detached: bool = False) -> "EmbeddedCluster":
        """Start master and nodes; unless detached, they end with this process at the latest."""
        if self._is_temporary:
            self.folder = Path(tempfile.mkdtemp(prefix="resurge-cluster-"))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark = f"{self.folder}#{secrets.token_hex(4)}"
        with self._locked():
            self._refuse_second()
            network = HostNetwork.create() if self._has_hosts else None
            if not detached:
                self._guardian = Guardian(
                    f"{mark}/", self.folder if self._is_temporary else None, network.name if network else None
                )
            try:
                write_state(self.folder, self._add(self._start_master(mark, network), self._specs))
            except BaseException:
                self._end(mark, [], network)
                self._dismiss_guardian()
                raise
        return self

    def __enter__(self) -> "EmbeddedCluster":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    @property
    def master_url(self) -> str:
        """The URL for Spark sessions."""
        return self._state().master_url

    def settings(self) -> dict[str, str]:
        """Spark settings of a job on this cluster."""
        secret = self._state().secret
        settings = standalone.cluster_settings(self._cores_per_node, self._memory, self._heartbeat_timeout_s, secret)
        if self.network is not None:
            address = self.network.address(hosts.DRIVER)
            settings |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
        return settings

    @property
    def network(self) -> HostNetwork | None:
        """The hosts, where each node has one of its own."""
        name = self._state().network
        return None if name is None else HostNetwork(name)

    def nodes(self) -> list[NodeInfo]:
        """The nodes that run, and those that died last."""
        return [
            NodeInfo(node.spec.name, node.spec.domain, node.spec.cpu_share, node.worker.pid, node.worker.find() is not None)
            for node in self._state().nodes
        ]

    def add(
        self, count: int = 1, cpu_share: float | None = None, domain: str | None = None, *, gently: bool = False
    ) -> list[str]:
        """Start nodes, without waiting until they join; they are as fast as a whole core unless told otherwise.

        A machine that boots takes nothing from the others, but a node that starts on this machine does: `gently` lets it start
        with what the others leave, until `restore_priority`, where the system allows that.
        """
        with self._locked():
            state = self._state()
            domains = None if domain is None else [domain] * count
            specs = node_specs(count, 1.0 if cpu_share is None else cpu_share, domains, started=state.started)
            added = without_old_dead(self.folder, self._add(state, specs))
            write_state(self.folder, added)
        if gently:
            for node in added.named([spec.name for spec in specs]):
                start_gently(node.worker)
        return [spec.name for spec in specs]

    def restore_priority(self) -> None:
        """All nodes are equal again, also those that were started gently."""
        equalise(f"{self._state().mark}/")

    def kill(self, *names: str) -> None:
        """kill -9 for worker, executor and Python workers of some nodes at once; their local files are lost too."""
        state = self._state()
        nodes = state.named(names)
        workers = [worker for node in nodes if (worker := node.worker.find()) is not None]
        kill_trees(workers, *(_node_mark(state.mark, node.spec.name) for node in nodes))
        self._reap({worker.pid for worker in workers})
        for node in nodes:
            shutil.rmtree(self._local_folder(node.spec.name), ignore_errors=True)

    def pause(self, *names: str) -> None:
        """SIGSTOP for every process of some nodes: they hang, with their connections open and their files kept."""
        state = self._state()
        pause_all(*(_node_mark(state.mark, node.spec.name) for node in state.named(names)))

    def resume(self, *names: str) -> None:
        """SIGCONT for nodes that were paused: they go on where they were, whatever was decided about them meanwhile."""
        state = self._state()
        resume_all(*(_node_mark(state.mark, node.spec.name) for node in state.named(names)))

    def cut(self, *names: str) -> None:
        """Cut nodes (or the driver) off from everybody: their processes go on, but nothing reaches them or comes from them."""
        self._linked(names).cut(names)

    def heal(self, *names: str) -> None:
        """Join nodes (or the driver) that were cut off."""
        self._linked(names).heal(names)

    def _linked(self, names: Sequence[str]) -> HostNetwork:
        self._state().named([name for name in names if name != hosts.DRIVER])
        if (network := self.network) is None:
            raise ClusterError("the nodes of this cluster share one host and have no links to cut; start it with --hosts")
        return network

    def stop(self) -> None:
        """Kill everything; logs stay if the folder was the caller's. A cluster that does not run is left alone."""
        if not self.folder.exists():
            return
        with self._locked():
            state = read_state(self.folder)
            if state is not None:
                processes = [*(node.worker for node in state.nodes), state.master]
                self._end(state.mark, processes, HostNetwork(state.network) if state.network else None)
        self._dismiss_guardian()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def executor_nodes(self, spark: "SparkSession") -> dict[str, str]:
        """The node of each executor that a session has now."""
        application = str(spark.sparkContext.applicationId)
        alive = executor_ids(spark)
        names = [node.spec.name for node in self._state().nodes]
        return {
            executor.name: name
            for name in names
            for executor in (self.folder / name / application).glob("[0-9]*")
            if executor.name in alive
        }

    def wait_for(self, spark: "SparkSession", executors: int, timeout_s: float = START_TIMEOUT_S) -> dict[str, str]:
        """Wait until a session has at least so many executors; the node of each."""
        deadline = time.monotonic() + timeout_s
        while len(found := self.executor_nodes(spark)) < executors:
            if time.monotonic() > deadline:
                raise ClusterError(f"expected {executors} executors within {timeout_s:g} s, got {len(found)}; {self._told()}")
            time.sleep(POLL_S)
        return found

    def wait_registered(self, names: Sequence[str] | None = None, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until nodes (all, if not named) have joined the master, with or without a job to run."""
        state = self._state()
        deadline = time.monotonic() + timeout_s
        for node in state.nodes if names is None else state.named(names):
            while REGISTERED not in self._log(node.spec.name).read_text(errors="replace"):
                if node.worker.find() is None or time.monotonic() > deadline:
                    raise ClusterError(f"{node.spec.name} did not join the cluster; {_last_line(self._log(node.spec.name))}")
                time.sleep(POLL_S)

    def _state(self) -> ClusterState:
        state = read_state(self.folder)
        if state is None:
            raise ClusterError("the cluster does not run; start it first, or use it in a with statement")
        return state

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / LOCK_FILE).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _refuse_second(self) -> None:
        state = read_state(self.folder)
        if state is None:
            return
        if state.master.find() is not None:
            raise ClusterError(
                f"a cluster runs in {self.folder} already, at {state.master_url}; stop it with resurge cluster stop, or name "
                "another folder"
            )
        # Its master is gone, by a reboot or by hand: end what is left of it.
        self._end(state.mark, [node.worker for node in state.nodes], HostNetwork(state.network) if state.network else None)

    def _start_master(self, mark: str, network: HostNetwork | None) -> ClusterState:
        address = standalone.HOST if network is None else network.address(MASTER)
        secret = secrets.token_urlsafe()
        environment = standalone.daemon_environment(_node_mark(mark, MASTER), secret, address)
        for _ in range(MASTER_ATTEMPTS):
            port = _free_port()
            process = self._spawn(MASTER, standalone.master_command(port, address), environment, network)
            with contextlib.nullcontext() if network is None else network.inside(hosts.DRIVER):
                is_up = _answers(address, port, process)
            if is_up:
                url, master = f"spark://{address}:{port}", ProcessId.of(process.pid)
                state = ClusterState(
                    mark, url, master, self._cores_per_node, self._memory, heartbeat_timeout_s=self._heartbeat_timeout_s
                )
                return msgspec.structs.replace(state, secret=secret, network=None if network is None else network.name)
        raise ClusterError(f"Spark's master did not start; {_last_line(self._log(MASTER))}")

    def _add(self, state: ClusterState, specs: Sequence[NodeSpec]) -> ClusterState:
        return state.with_nodes([NodeRecord(spec, self._start_node(state, spec)) for spec in specs])

    def _start_node(self, state: ClusterState, spec: NodeSpec) -> ProcessId:
        folder = self.folder / spec.name
        for left in folder.glob("app-*"):
            shutil.rmtree(left, ignore_errors=True)
        local = self._local_folder(spec.name)
        local.mkdir(parents=True, exist_ok=True)
        network = HostNetwork(state.network) if state.network else None
        address = standalone.HOST if network is None else network.add(spec.name)
        command = standalone.worker_command(state.master_url, state.cores_per_node, state.memory, folder, address)
        environment = standalone.node_environment(_node_mark(state.mark, spec.name), state.secret, spec, local, address)
        return ProcessId.of(self._spawn(spec.name, command, environment, network).pid)

    def _spawn(
        self, name: str, command: list[str], environment: dict[str, str], network: HostNetwork | None
    ) -> subprocess.Popen[bytes]:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                command if network is None else network.command(name, command),
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append(process)
        return process

    def _end(self, mark: str, processes: Sequence[ProcessId], network: HostNetwork | None) -> None:
        kill_trees([found for process in processes if (found := process.find()) is not None], f"{mark}/")
        if network is not None:
            network.remove()
        self._reap({child.pid for child in self._children})
        shutil.rmtree(self.folder / LOCAL_FOLDER, ignore_errors=True)
        remove_state(self.folder)

    def _dismiss_guardian(self) -> None:
        if self._guardian is not None:
            self._guardian.close()
            self._guardian = None

    def _reap(self, killed: set[int]) -> None:
        for child in self._children:
            if child.pid in killed:
                child.wait()
        self._children = [child for child in self._children if child.poll() is None]

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _local_folder(self, name: str) -> Path:
        return self.folder / LOCAL_FOLDER / name

    def _told(self) -> str:
        dead = [node.name for node in self.nodes() if not node.is_alive]
        alive = [node.name for node in self.nodes() if node.is_alive]
        return f"nodes alive: {', '.join(alive) or 'none'}; dead: {', '.join(dead) or 'none'}; logs are in {self.folder}"


def cluster_at(master_url: str) -> EmbeddedCluster | None:
    """The embedded cluster of this machine that has this master, if it is one."""
    for process in marked("/"):
        with contextlib.suppress(Exception):
            folder = Path(process.environ()[MARK].rpartition("#")[0])
            state = read_state(folder)
            if state is not None and state.master_url == master_url and state.master.find() is not None:
                return EmbeddedCluster.running(folder)
    return None


def executor_ids(spark: "SparkSession") -> set[str]:
    """The executors that a session has now."""
    scala: Any = spark.sparkContext._jsc.sc()
    found = scala.statusStore().executorList(True)
    return {str(found.apply(index).id()) for index in range(found.size())} - {"driver"}


def _node_mark(mark: str, name: str) -> str:
    return f"{mark}/{name}/"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((standalone.HOST, 0))
        return int(probe.getsockname()[1])


def _answers(host: str, port: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether a master comes to listen on its port, rather than to end because somebody else took it."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
            return True
        time.sleep(POLL_S)
    return False


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"the end of {log}: {lines[-1].strip() if lines else '(empty)'}"
