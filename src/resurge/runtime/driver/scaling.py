"""Asking whoever manages the cluster for nodes, and giving nodes back: Spark's own request and kill of executors."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

from resurge.errors import JobError
from resurge.model.names import NodeId

if TYPE_CHECKING:
    from pyspark import SparkContext


class Scaler(Protocol):
    """Changes the number of nodes; calls return before anything has changed."""

    def request(self, total: int) -> None:
        """Have so many nodes in all."""

    def release(self, nodes: Collection[NodeId]) -> None:
        """Let nodes go, and have none in their place."""

    def joined(self) -> None:
        """A node that was asked for has become warm."""


class SparkScaler:
    """On any master: one executor is one node."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context
        self._scala: Any = context._jsc.sc()
        self._total: int | None = None

    def request(self, total: int) -> None:
        """Spark starts what is missing, now or when there is room, and replaces what dies."""
        jvm: Any = self._context._jvm
        nowhere = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        if not self._scala.requestTotalExecutors(total, 0, nowhere):
            raise JobError(f"Spark did not take the request for {total} executors")
        self._total = total

    def release(self, nodes: Collection[NodeId]) -> None:
        """Spark ends executors, and wants as many fewer from now on."""
        if self._total is None:
            # Spark counts down from what was asked for: without a number it would want none at all.
            self.request(int(self._scala.getExecutorIds().size()))
        for node in nodes:
            self._scala.killExecutor(str(node))

    def joined(self) -> None:
        """Nothing to do."""
