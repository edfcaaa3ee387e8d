"""The RDDs of a job: located tasks, one shuffle between two levels. Few calls into the JVM, however many slots there are."""

import io
import itertools
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resurge.runtime.worker.tasks import LevelFunction, RemoveStore, WarmUp

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

MOST_LOCATED = 64
MOST_COMMAND_BYTES = 1 << 20
Function = LevelFunction | WarmUp | RemoveStore


class JobRdds:
    """Builds RDDs; classes of the JVM and whatever does not change from job to job are looked up once."""

    def __init__(self, context: "SparkContext") -> None:
        from pyspark.core.broadcast import Broadcast, _from_id
        from pyspark.serializers import NoOpSerializer

        self._context = context
        self._serializer = NoOpSerializer()
        jvm: Any = context._jvm
        self._scala: Any = context._jsc.sc()
        self._bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        self._any = jvm.scala.reflect.ClassTag.Any()
        self._identity = getattr(jvm.scala.Predef, "$conforms")()
        self._list, self._map = jvm.java.util.ArrayList, jvm.java.util.HashMap
        self._copies = jvm.java.util.Collections.nCopies
        self._as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self._pair = jvm.scala.Tuple2
        self._function, self._python_rdd = jvm.SimplePythonFunction, jvm.PythonRDD
        self._value_of_pair = jvm.PythonRDD.valueOfPair
        self._pairwise, self._partitioner = jvm.PairwiseRDD, jvm.PythonPartitioner
        # Left to itself Spark takes Kryo for arrays of bytes, and tasks spend time on registering classes with it.
        self._written_by = jvm.org.apache.spark.serializer.JavaSerializer(self._scala.conf())
        self._joined = jvm.org.sparkproject.guava.primitives.Bytes.concat
        self._located: dict[tuple[tuple[str, ...], int], Any] = {}
        self._places: dict[str, Any] = {}
        self._partitioners: dict[int, Any] = {}
        self._environment: tuple[dict[str, str], Any] = ({}, None)
        self._includes: tuple[list[str], Any] = ([], self._list())
        self._listed: tuple[tuple[Any, ...], Any] = ((), self._list())
        self._numbered: list[tuple[Any, int]] = []
        self._broadcast_type, self._from_number = Broadcast, _from_id

    def job(self, locations: tuple[str, ...], functions: Sequence[Function], *broadcasts: "Broadcast[bytes] | None") -> Any:
        """One task per location and level; the packets of a level are the input of the next."""
        slots, given = len(locations), tuple(each for each in broadcasts if each is not None)
        stage = self._stage(self.placed(locations, 1), functions[0], given)
        for function in functions[1:]:
            pairs = self._pairwise(stage).asJavaPairRDD().partitionBy(self._partitioned(slots))
            pairs.rdd().setSerializer(self._written_by)
            located = self.placed(locations, slots).zip(self._value_of_pair(pairs).rdd(), self._bytes)
            stage = self._stage(located, function, given)
        return stage

    def collect(self, rdd: Any) -> list[bytes]:
        """Run a job and fetch what its last level returned: one message per element, each with its length before it."""
        # One array: each element of a list would be a call, and the end of the list an exception of 60 calls.
        joined = bytes(self._joined(rdd.collect()))
        found, start = [], 0
        while start < len(joined):
            end = start + 4 + int.from_bytes(joined[start : start + 4], "big")
            found.append(joined[start + 4 : end])
            start = end
        return found

    def placed(self, locations: tuple[str, ...], copies: int) -> Any:
        """An RDD with one partition per slot, each preferring its location, of `copies` empty elements; reused between epochs."""
        known = self._located.get((locations, copies))
        if known is None:
            elements = self._sequence(self._copies(copies, bytearray()))
            places = {location: self._pair(elements, self._place(location)) for location in dict.fromkeys(locations)}
            pairs = self._list()
            for location, neighbours in itertools.groupby(locations):
                pairs.addAll(self._copies(len(list(neighbours)), places[location]))
            known = self._scala.makeRDD(self._sequence(pairs), self._any).flatMap(self._identity, self._bytes)
            while len(self._located) >= MOST_LOCATED:
                self._located.pop(next(iter(self._located)), None)
            self._located[locations, copies] = known
        return known

    def _place(self, location: str) -> Any:
        if location not in self._places:
            self._places[location] = self._sequence(self._copies(1, location))
        return self._places[location]

    def _partitioned(self, slots: int) -> Any:
        if slots not in self._partitioners:
            self._partitioners[slots] = self._partitioner(slots, 0)
        return self._partitioners[slots]

    def _sequence(self, java_list: Any) -> Any:
        return self._as_scala(java_list).toSeq()

    def _stage(self, parent: Any, function: Function, given: "tuple[Broadcast[bytes], ...]") -> Any:
        context = self._context
        command = self._pickled((function, None, self._serializer, self._serializer))
        broadcasts = self._broadcasts(given)
        if len(command) > MOST_COMMAND_BYTES:
            whole = context.broadcast(command)
            command = self._pickled(whole)
            broadcasts = self._list(broadcasts)
            broadcasts.add(whole._jbroadcast)
        wrapped = self._function(
            bytearray(command),
            self._variables(),
            self._python_includes(),
            context.pythonExec,
            context.pythonVer,
            broadcasts,
            context._javaAccumulator,
        )
        return self._python_rdd(parent, wrapped, True, False)

    def _pickled(self, value: object) -> bytes:
        """A value with broadcast variables as Spark's Python workers read them."""
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
        # A broadcast variable would ask the JVM for its number each time, and be noted for functions that are Spark's own.
        pickler.dispatch_table = {self._broadcast_type: self._reduced}
        pickler.dump(value)
        return buffer.getvalue()

    def _reduced(self, broadcast: "Broadcast[bytes]") -> tuple[Any, tuple[int]]:
        for known, number in self._numbered:
            if known is broadcast:
                return self._from_number, (number,)
        number = int(broadcast._jbroadcast.id())
        self._numbered = [*self._numbered[-1:], (broadcast, number)]
        return self._from_number, (number,)

    def _broadcasts(self, given: "tuple[Broadcast[bytes], ...]") -> Any:
        known, listed = self._listed
        if known != given:
            listed = self._list()
            for each in given:
                listed.add(each._jbroadcast)
            self._listed = given, listed
        return listed

    def _python_includes(self) -> Any:
        wanted = list(self._context._python_includes)
        if self._includes[0] != wanted:
            made = self._list()
            for name in wanted:
                made.add(name)
            self._includes = wanted, made
        return self._includes[1]

    def _variables(self) -> Any:
        """The environment of Python workers, which changes if Resurge is shipped to them."""
        wanted = dict(self._context.environment)
        if self._environment[0] != wanted or self._environment[1] is None:
            made = self._map()
            for name, value in wanted.items():
                made.put(name, value)
            self._environment = wanted, made
        return self._environment[1]
