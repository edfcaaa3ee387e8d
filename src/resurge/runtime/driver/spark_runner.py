"""Job plans as Spark jobs: located tasks, Arrow blobs, one shuffle between two levels."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from resurge.errors import EngineError, JobError, UnfitNodeError
from resurge.model.names import NodeId
from resurge.runtime.driver.job_code import packed
from resurge.runtime.driver.job_rdds import JobRdds
from resurge.runtime.driver.node_watch import NodeWatch
from resurge.runtime.driver.runner import Member, NodesLostError
from resurge.runtime.driver.shipping import is_missing, ship
from resurge.runtime.driver.spark_settings import is_in_process, refuse_unfit, seconds
from resurge.runtime.driver.warming import Warming
from resurge.runtime.worker.fitness import Fitness, misfits, own_fitness
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.runtime.worker.tasks import IN_PROCESS_NODE, LevelFunction, RemoveStore, SentLayout, WarmUp, decode_reports
from resurge.telemetry.events import Event, LocalStoreMeasured, NodeNamed, Warned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WATCH_S = 0.05
SETTLE_S = 0.3
SETTLE_MOST_S = 2.0
CANCEL_S = 5.0
WARM_S = 60.0
REMOVE_S = 10.0
STORE_S = 5.0


class SparkRunner:
    """Runs plans on a Spark session; the session is the caller's to stop."""

    has_costly_slots = True

    def __init__(
        self,
        spark: "SparkSession",
        cpu_share: Callable[[str], float] | None = None,
        node_names: Callable[[], Mapping[str, str]] | None = None,
        domain: Callable[[str], str] | None = None,
    ) -> None:
        self.spark = spark
        self.node_names = node_names
        self._named: set[NodeId] = set()
        self.cpu_share = cpu_share or (lambda executor: 1.0)
        self._domain = domain or (lambda executor: self._hosts[NodeId(executor)])
        self.context = spark.sparkContext
        self.master = str(self.context.master)
        self.is_concurrent = not is_in_process(self.master)
        refuse_unfit(self.master, self.context.getConf().get)
        self._scala: Any = self.context._jsc.sc()
        self._rdds = JobRdds(self.context)
        self._code: dict[str, tuple[Any, int]] = {}
        self._layout: SentLayout | None = None
        self._jobs = itertools.count(1)
        self._folders: set[str] = set()
        self._measured_s = float("-inf")
        self._hosts: dict[str, str] = {}
        self._known: dict[NodeId, int] = {}
        self._cores_per_task = int(self.context.getConf().get("spark.task.cpus", "1"))
        self._seen: frozenset[NodeId] = frozenset()
        self._driver_host = str(self.context.getConf().get("spark.driver.host", "127.0.0.1"))
        self._shipping = threading.Lock()
        self._is_shipped = False
        self._watch: NodeWatch | None = None
        self._emit: Callable[[Event], None] = lambda event: None
        self._warming = Warming(self._warm, lambda reason: self._emit(Warned(time.time(), reason)))

    def session(self) -> "SparkSession":
        """The session, for sources that are streaming DataFrames."""
        return self.spark

    def listen(self, emit: Callable[[Event], None]) -> None:
        """Tell of nodes that are refused, and of those that are waited for; and what the user calls them."""
        self._emit = emit
        self._named.clear()

    def members(self) -> dict[NodeId, Member]:
        """The executors that are up and warm; new ones are warmed in the background."""
        if not self.is_concurrent:
            return {NodeId(IN_PROCESS_NODE): Member(int(self.context.defaultParallelism))}
        found = self._executors()
        self._warming.track(found)
        self._emit_names(found)
        return {node: found[node] for node in self._warming.warm if node in found}

    def _emit_names(self, nodes: Iterable[NodeId]) -> None:
        new = set(nodes) - self._named
        if self.node_names is None or not new:
            return
        known = self.node_names()
        for node in sorted(new.intersection(known)):
            self._named.add(node)
            self._emit(NodeNamed(time.time(), node, known[node]))

    def _alive(self) -> frozenset[NodeId]:
        """The executors that there are now; two calls into the JVM, because this is asked all the time."""
        listed = str(self._scala.getExecutorIds().mkString(","))
        return frozenset(NodeId(name) for name in listed.split(",") if name)

    def _settled(self, known: frozenset[NodeId]) -> frozenset[NodeId]:
        """Who is there; nodes that die together are missed one by one, so that a loss is told when no more go."""
        alive = self._alive()
        began = changed = time.monotonic()
        while not known <= alive and time.monotonic() < min(changed + SETTLE_S, began + SETTLE_MOST_S):
            time.sleep(WATCH_S)
            newest = self._alive()
            if newest != alive:
                alive, changed = newest, time.monotonic()
        return alive

    def _executors(self) -> dict[NodeId, Member]:
        alive = self._seen = self._settled(self._seen)
        if not alive <= self._known.keys():
            self._learn()
        known = (node for node in alive if node in self._known)
        return {node: Member(self._known[node], self.cpu_share(node), self._domain(node)) for node in known}

    def _learn(self) -> None:
        """Ask for hosts and cores of executors that are new."""
        listed = self._scala.statusStore().executorList(True)
        for index in range(listed.size()):
            executor = listed.apply(index)
            name = NodeId(str(executor.id()))
            self._hosts[name] = str(executor.hostPort()).rsplit(":", 1)[0]
            self._known[name] = max(1, int(executor.totalCores()) // self._cores_per_task)

    def install(self, job: str, code: JobCode) -> None:
        """Broadcast the job's code; functions of the user's own travel by value."""
        self._code = {job: (self.context.broadcast(packed(code)), code.program.levels)}
        self._wait_until_warm()
        if self.is_concurrent and self._watch is None:
            self._watch = NodeWatch(self.context, self._heartbeat_timeout_s(), self._watched, self._emit)
            self._watch.start()

    def _heartbeat_timeout_s(self) -> float:
        """After how many seconds without a heartbeat Spark itself gives an executor up."""
        return seconds(str(self.context.getConf().get("spark.storage.blockManagerHeartbeatTimeoutMs", "120s")))

    def _watched(self) -> frozenset[NodeId]:
        """The nodes that jobs may wait for; one that is not warm yet has nothing to lose, and may be slow."""
        return self._alive().intersection(self._warming.warm)

    def _wait_until_warm(self) -> None:
        """Begin with all executors that there are and fit, so that partitions are spread over all of them."""
        deadline = time.monotonic() + WARM_S
        while self.is_concurrent and time.monotonic() < deadline:
            known = self._executors()
            refused = self._warming.refused
            if known and len(self.members()) + len(refused) >= len(known):
                if known.keys() <= refused.keys():
                    raise JobError(f"no node can run this job: {'; '.join(refused.values())}")
                return
            time.sleep(WATCH_S)

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Run one plan as one Spark job."""
        code, levels = self._code[plan.job]
        nodes = tuple(slot.node for slot in plan.slots)
        self._folders.add(plan.local_root)
        encoded, layout = msgspec.msgpack.encode(plan.without_layout()), self._sent(plan)
        stages = [range(levels)] if len(nodes) == 1 else [range(level, level + 1) for level in range(levels)]
        functions = [LevelFunction(encoded, code, plan.job, stage, levels, layout) for stage in stages]
        job = self._rdds.job(self._locations(nodes), functions, code, layout.content if layout is not None else None)
        reports = decode_reports(self._collected(job, frozenset(NodeId(node) for node in nodes)))
        self._emit_store(plan, reports)
        return reports

    def _sent(self, plan: JobPlan) -> SentLayout | None:
        """The layout of a plan, which is broadcast once for all jobs that have it."""
        if plan.layout is None:
            return None
        if self._layout is None or (self._layout.job, self._layout.name) != (plan.job, plan.layout.name):
            if self._layout is not None:
                self._layout.content.unpersist()
            content = self.context.broadcast(msgspec.msgpack.encode(plan.layout))
            self._layout = SentLayout(plan.job, plan.layout.name, content)
        return self._layout

    def _emit_store(self, plan: JobPlan, reports: list[SlotReport]) -> None:
        """Tell how full the local stores are, every few seconds."""
        if time.monotonic() < self._measured_s + STORE_S:
            return
        self._measured_s = time.monotonic()
        used: dict[str, int] = {}
        overflow: dict[str, int] = {}
        for report in reports:
            node = plan.slots[report.slot].node
            used[node] = max(used.get(node, 0), report.local_bytes)
            overflow[node] = max(overflow.get(node, 0), report.overflow_bytes)
        self._emit(LocalStoreMeasured(time.time(), plan.local_root, plan.local_limit_bytes, used, overflow))

    def _collected(self, job: Any, nodes: frozenset[NodeId]) -> list[bytes]:
        """Run the job; on a cluster watch its nodes meanwhile, and give it up as soon as one is lost."""
        if not self.is_concurrent:
            return self._result(job)
        from pyspark import InheritableThread

        group = f"resurge-{id(self)}-{next(self._jobs)}"
        outcome: dict[str, Any] = {}

        def run() -> None:
            self.context.setJobGroup(group, group, interruptOnCancel=True)
            try:
                outcome["result"] = self._result(job)
            except JobError as error:
                outcome["error"] = error

        thread = InheritableThread(target=run, daemon=True)
        thread.start()
        lost: frozenset[NodeId] = frozenset()
        while thread.is_alive():
            thread.join(WATCH_S)
            lost = nodes - self._alive()
            if lost:
                self.context.cancelJobGroup(group)
                lost = nodes - self._settled(nodes)
                thread.join(CANCEL_S)
                break
        if "result" in outcome:
            found: list[bytes] = outcome["result"]
            return found
        lost = lost or self._lost_soon(nodes)
        if lost:
            self._warming.forget(lost)
            raise NodesLostError(lost)
        raise outcome.get("error") or JobError("the Spark job was cancelled")

    def _lost_soon(self, nodes: frozenset[NodeId]) -> frozenset[NodeId]:
        """A job may fail for a lost node just before the loss is seen."""
        deadline = time.monotonic() + CANCEL_S
        while time.monotonic() < deadline:
            lost = nodes - self._alive()
            if lost:
                return lost
            time.sleep(WATCH_S)
        return frozenset()

    def _warm(self, node: NodeId) -> None:
        """Run a job on a new node alone, which does what every job does, and refuse the node if its versions do not fit."""
        try:
            found = self._warmed(node)
        except EngineError as error:
            if not is_missing(error):
                raise
            with self._shipping:
                if not self._is_shipped:
                    ship(self.context)
                    self._is_shipped = True
            found = self._warmed(node)
        if found.executor is None:
            raise UnfitNodeError(
                f"node {node} on {found.host} is refused: its Python workers cannot emit which executor they belong to; expected "
                "/proc, or the variable SPARK_EXECUTOR_ID"
            )
        if found.executor != node:
            raise EngineError(f"Spark ran the task on executor {found.executor}")
        wrong = misfits(own_fitness(), found)
        if wrong:
            raise UnfitNodeError(
                f"node {node} on {found.host} is refused: {'; '.join(wrong)}; give all nodes the driver's environment "
                "(docs/guides/deploying.md)"
            )

    def _warmed(self, node: NodeId) -> Fitness:
        """Python workers, imports, the job's code, a shuffle; what the node reports of itself."""
        job, (code, _) = next(iter(self._code.items()), ("", (None, 0)))
        functions = [WarmUp(code, job, is_last=is_last) for is_last in (False, True)]
        found = self._result(self._rdds.job(self._locations([node]), functions, code))
        try:
            return msgspec.json.decode(found[-1], type=Fitness)
        except msgspec.MsgspecError as error:
            raise UnfitNodeError(
                f"node {node} is refused: it has another version of Resurge, which reports no versions"
            ) from error

    def close(self) -> None:
        """Have the nodes remove their local stores, drop the broadcast code, and watch the nodes no longer."""
        self._remove_stores()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        for code, _ in self._code.values():
            code.unpersist()

    def _remove_stores(self) -> None:
        """On every machine that has a node; one whose nodes are all lost is cleaned when a node joins there again."""
        folders, self._folders = self._folders, set()

        def remove() -> None:
            # The session may have ended already, or a node hang: what is left then is removed by whoever comes next.
            with contextlib.suppress(Exception):
                nodes = sorted(self._watched())
                if nodes:
                    self._rdds.collect(self._rdds.job(self._locations(nodes), [RemoveStore(folders)], None))

        if self.is_concurrent and folders:
            removing = threading.Thread(target=remove, daemon=True)
            removing.start()
            removing.join(REMOVE_S)

    def _locations(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """How Spark names the executors of some nodes as places for tasks."""
        return tuple(f"executor_{self._hosts.get(node, self._driver_host)}_{node}" for node in nodes)

    def _result(self, job: Any) -> list[bytes]:
        try:
            return self._rdds.collect(job)
        except Exception as error:
            raise EngineError(f"Spark could not run the job: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    return (told or lines or [type(error).__name__])[-1][:500]
