"""Asks executors whether they are there, over Spark's own connections and without taking a core from a task."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from resurge.model.names import NodeId

if TYPE_CHECKING:
    from pyspark import SparkContext

ANSWER_S = 600
LOST = "the node did not answer within its time-out"


class NodePings:
    """One question at a time to each executor: for the state of a block that nobody has, which any of its threads can answer."""

    def __init__(self, context: "SparkContext") -> None:
        jvm: Any = context._jvm
        self._scala: Any = context._jsc.sc()
        # Not by its method: looking for methods of this class needs classes that not every installation of Spark has.
        field = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField("blockManager")
        field.setAccessible(True)
        self._nodes: Any = field.get(self._scala.env()).master()
        storage, spark = jvm.org.apache.spark.storage, jvm.org.apache.spark
        self._question = getattr(storage, "BlockManagerMessages$GetBlockStatus")(storage.TaskResultBlockId(-1), False)
        seconds = jvm.scala.concurrent.duration.FiniteDuration(ANSWER_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
        self._timeout = spark.rpc.RpcTimeout(seconds, "resurge")
        self._any = jvm.scala.reflect.ClassTag.Any()
        self._remove = getattr(spark.scheduler.cluster, "CoarseGrainedClusterMessages$RemoveExecutor")
        self._reason = spark.scheduler.ExecutorProcessLost(LOST, jvm.scala.Option.empty(), False)
        self._addresses: dict[NodeId, Any] = {}
        self._asked: dict[NodeId, Any] = {}

    def heard(self, nodes: Iterable[NodeId]) -> frozenset[NodeId]:
        """The nodes that have answered since this was asked last; they are asked again."""
        wanted = frozenset(nodes)
        for gone in self._addresses.keys() - wanted:
            self._forget(gone)
        return frozenset(node for node in sorted(wanted) if self._is_heard(node))

    def _is_heard(self, node: NodeId) -> bool:
        asked = self._asked.get(node)
        if asked is None:
            self._ask(node)
            return True
        answer = str(asked.toString())
        if "Success" not in answer and "Failure" not in answer:
            return False
        # A question that could not be delivered is asked again, but is no answer: the node may be cut off.
        self._ask(node)
        return "Success" in answer

    def _ask(self, node: NodeId) -> None:
        if node not in self._addresses:
            found = self._nodes.getExecutorEndpointRef(str(node))
            if not found.isDefined():
                # It has just joined, and cannot be asked yet.
                return
            self._addresses[node] = found.get()
        self._asked[node] = self._addresses[node].ask(self._question, self._timeout, self._any)

    def _forget(self, node: NodeId) -> None:
        self._addresses.pop(node, None)
        self._asked.pop(node, None)

    def kill(self, node: NodeId) -> None:
        """Have the cluster manager end an executor that hangs, and start another in its place."""
        self._scala.killAndReplaceExecutor(str(node))

    def remove(self, node: NodeId) -> None:
        """Have Spark take an executor for lost now; it would wait for many heartbeats that do not come."""
        self._scala.schedulerBackend().driverEndpoint().send(self._remove(str(node), self._reason))
