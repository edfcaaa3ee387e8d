"""Job plans as Spark jobs: located tasks, Arrow blobs, one shuffle between two levels."""

from typing import TYPE_CHECKING, Any

import msgspec

from resurge.errors import JobError
from resurge.runtime.worker.level import JobCode
from resurge.runtime.worker.messages import JobPlan, SlotReport
from resurge.runtime.worker.tasks import LevelFunction, decode_reports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRunner:
    """Runs plans on a Spark session; the session is the caller's to stop."""

    def __init__(self, spark: "SparkSession") -> None:
        from pyspark.serializers import NoOpSerializer

        self.context = spark.sparkContext
        self.master = str(self.context.master)
        self._jvm: Any = self.context._jvm
        self._scala: Any = self.context._jsc.sc()
        self._serializer = NoOpSerializer()
        self._bytes = self._jvm.scala.reflect.ClassTag.apply(self._jvm.java.lang.Class.forName("[B"))
        self._any = self._jvm.scala.reflect.ClassTag.Any()
        self._identity = getattr(self._jvm.scala.Predef, "$conforms")()
        self._located: dict[tuple[tuple[str, ...], int], Any] = {}
        self._code: dict[str, tuple[Any, int]] = {}
        self._group = 0

    def slots(self) -> list[str]:
        """One slot per core of every executor."""
        if self.master.startswith("local"):
            return ["driver"] * int(self.context.defaultParallelism)
        found = self._scala.statusStore().executorList(True)
        executors = [found.apply(index) for index in range(found.size())]
        return [str(e.id()) for e in executors if str(e.id()) != "driver" for _ in range(int(e.totalCores()))]

    def install(self, job: str, code: JobCode) -> None:
        """Broadcast the job's code; functions of the user's own travel by value."""
        from pyspark import cloudpickle

        self._code = {job: (self.context.broadcast(cloudpickle.dumps(code)), code.program.levels)}

    def run(self, plan: JobPlan) -> list[SlotReport]:
        """Run one plan as one Spark job."""
        code, levels = self._code[plan.job]
        nodes = tuple(slot.node for slot in plan.slots)
        encoded = msgspec.msgpack.encode(plan)
        stage = self._stage(self._placed(nodes, 1), LevelFunction(encoded, code, plan.job, 0, levels))
        for level in range(1, levels):
            shuffled = self._shuffled(stage, len(nodes))
            pairs = self._placed(nodes, len(nodes)).zip(shuffled, self._bytes)
            stage = self._stage(pairs, LevelFunction(encoded, code, plan.job, level, levels))
        try:
            collected = stage.asJavaRDD().collect()
        except Exception as error:
            raise JobError(f"Spark could not run the job: {_reason(error)}") from error
        return decode_reports(bytes(item) for item in collected)

    def close(self) -> None:
        """Drop the broadcast code."""
        for code, _ in self._code.values():
            code.unpersist()

    def _stage(self, parent: Any, function: LevelFunction) -> Any:
        from pyspark.core.rdd import _wrap_function

        wrapped = _wrap_function(self.context, function, self._serializer, self._serializer)
        return self._jvm.PythonRDD(parent, wrapped, True, False)

    def _shuffled(self, stage: Any, slots: int) -> Any:
        pairs = self._jvm.PairwiseRDD(stage).asJavaPairRDD()
        return self._jvm.PythonRDD.valueOfPair(pairs.partitionBy(self._jvm.PythonPartitioner(slots, 0))).rdd()

    def _placed(self, nodes: tuple[str, ...], copies: int) -> Any:
        """An RDD with one partition per slot, each preferring its node, of `copies` empty elements; reused between epochs."""
        if (nodes, copies) not in self._located:
            host = str(self.context.getConf().get("spark.driver.host", "127.0.0.1"))
            pairs = self._jvm.java.util.ArrayList()
            for node in nodes:
                elements = self._jvm.java.util.ArrayList()
                for _ in range(copies):
                    elements.add(bytearray())
                where = self._jvm.java.util.ArrayList()
                where.add(f"executor_{self._host(node, host)}_{node}")
                pairs.add(self._jvm.scala.Tuple2(self._sequence(elements), self._sequence(where)))
            placed = self._scala.makeRDD(self._sequence(pairs), self._any)
            self._located[nodes, copies] = placed.flatMap(self._identity, self._bytes)
        return self._located[nodes, copies]

    def _host(self, node: str, default: str) -> str:
        if node == "driver":
            return default
        found = self._scala.statusStore().executorList(True)
        hosts = {str(found.apply(i).id()): str(found.apply(i).hostPort()).rsplit(":", 1)[0] for i in range(found.size())}
        return hosts.get(node, default)

    def _sequence(self, java_list: Any) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(java_list).toSeq()


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "Exception" in line]
    return (told or lines or [type(error).__name__])[-1][:500]
