"""What a topology refuses, and how it says so: what was expected, what came, what to do."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, dataclass

import polars as pl
import pytest

from resurge.api.builder import Stream, TopologyBuilder
from resurge.connectors.sinks import MemorySink
from resurge.errors import TopologyError
from resurge.model.operator import Determinism, Operator, StreamShape
from resurge.model.topology import Query, build_topology
from resurge.operators.aggregates import count, max_, mean, min_, sum_
from resurge.operators.keyed_state import value_of
from tests.support.scripted import scripted

CLICKS = pl.DataFrame(schema={"at": pl.Datetime("us"), "who": pl.String, "amount": pl.Int64, "tags": pl.List(pl.String)})


@dataclass(frozen=True)
class Plain(Operator):
    """An operator that only has a name and inputs."""

    @property
    def determinism(self) -> Determinism:
        return Determinism.REPEATABLE

    def shape(self, inputs: Sequence[StreamShape]) -> StreamShape:
        return StreamShape(CLICKS.schema, "at")


def build(*operators: Operator, queries: Sequence[Query] = (Query("out", "a"),), name: str = "job", key_groups: int = 4):
    return build_topology(name, key_groups, list(operators), list(queries))


def clicks(job: TopologyBuilder, name: str = "clicks", *, event_time: str | None = "at") -> Stream:
    return job.source(name, scripted([[CLICKS]]), event_time=event_time)


def refusal(describe) -> str:
    """What is said when a topology is refused, on the line that makes the mistake or when it is built."""
    with pytest.raises(TopologyError) as caught:
        job = TopologyBuilder("job")
        describe(job)
        job.build()
    return str(caught.value)


def test_a_cycle_is_refused_with_its_streams_named():
    """The operators on the cycle are listed in order, and one stream must go."""
    with pytest.raises(TopologyError) as caught:
        build(Plain("a", ("c",)), Plain("b", ("a",)), Plain("c", ("b",)), Plain("d", ()))
    message = str(caught.value)
    assert "cycle" in message and "expected a directed acyclic graph: remove one of its streams" in message
    assert all(name in message for name in "abc") and "d" not in message.split("(")[1].split(")", maxsplit=1)[0]


def test_an_operator_that_reads_itself_is_a_cycle():
    """The shortest cycle."""
    with pytest.raises(TopologyError, match=r"form a cycle \(a\); expected a directed acyclic graph"):
        build(Plain("a", ("a",)))


@pytest.mark.parametrize("key_groups", [0, -1, 32769, 2.5, "4", True, None])
def test_a_number_of_key_groups_that_cannot_be_is_refused(key_groups):
    """At least one, at most 32768, and whole."""
    with pytest.raises(TopologyError, match="expected a whole number from 1 to 32768") as caught:
        build(Plain("a", ()), key_groups=key_groups)
    assert repr(key_groups) in str(caught.value)


@pytest.mark.parametrize("priority", [0, 11, -3, 1.5, "high", True, None])
def test_a_priority_outside_1_to_10_is_refused(priority):
    """A priority is a whole number from 1 to 10."""
    message = refusal(lambda job: clicks(job).query("out", priority=priority))
    assert f"query 'out' has priority {priority!r}; expected a whole number from 1 (least) to 10 (most valuable)" in message


@pytest.mark.parametrize("name", ["../../x", "", "a/b", "a b", ".hidden", "-a", "x" * 81, "naïve", "a\n", None, 7, "a\x00b"])
def test_a_name_that_would_not_be_safe_in_a_path_is_refused(name):
    """Topologies, operators and queries are called by letters, digits, '_' and '-'."""
    wanted = "expected 1 to 80 letters, digits, '_' or '-', beginning with a letter or digit: choose such a name"
    with pytest.raises(TopologyError) as caught:
        TopologyBuilder(name)
    assert f"the topology is called {name!r}; {wanted}" in str(caught.value)
    assert f"an operator is called {name!r}; {wanted}" in refusal(lambda job: clicks(job, name))
    if name:
        assert f"a query is called {name!r}; {wanted}" in refusal(lambda job: clicks(job).query(name))
    with pytest.raises(TopologyError, match="choose such a name"):
        build(Plain("a", ()), name=name)


def test_two_operators_or_two_queries_of_one_name_are_refused():
    """Names tell state and output apart, so they are distinct."""
    wanted = "expected distinct names: rename one of them"
    assert f"two operators are called 'clicks'; {wanted}" in refusal(lambda job: (clicks(job), clicks(job)))

    def two_queries(job):
        stream = clicks(job)
        stream.query("out")
        stream.query("out")

    assert f"two queries are called 'out'; {wanted}" in refusal(two_queries)
    with pytest.raises(TopologyError, match=wanted):
        build(Plain("a", ()), Plain("a", ()))


def test_an_unknown_input_is_refused_and_those_there_are_listed():
    """For operators and for queries."""
    with pytest.raises(TopologyError, match="operator 'b' reads 'missing', which is not in the topology; it has a, b"):
        build(Plain("a", ()), Plain("b", ("missing",)))
    with pytest.raises(TopologyError, match="query 'out' reads 'missing', which is not in the topology"):
        build(Plain("a", ()), queries=[Query("out", "missing")])


def test_a_topology_without_query_is_refused():
    """Nothing would come out."""
    assert "has no query: give at least one operator a query" in refusal(clicks)


KEYED = {
    "aggregate": lambda stream: stream.aggregate("x", key="whom", n=count()),
    "window": lambda stream: stream.window("x", "1s", key=["who", "whom"], n=count()),
    "session": lambda stream: stream.session("x", "1s", key="whom", n=count()),
    "top_k": lambda stream: stream.top_k("x", 3, by="amount", per="whom", identity="who"),
    "maintain": lambda stream: stream.builder.maintain("x", stream, key="whom"),
    "join": lambda stream: stream.join("x", clicks(stream.builder, "views"), on="whom", within="1s"),
    "process": lambda stream: stream.process("x", print, key="whom", schema={"n": pl.Int64}, state={"n": value_of(pl.Int64)}),
    "value": lambda stream: stream.window("x", "1s", key="who", n=sum_("whom")),
}


@pytest.mark.parametrize("kind", sorted(KEYED))
def test_an_unknown_column_is_refused_and_the_columns_are_listed(kind):
    """Whoever uses the column is named."""
    message = refusal(lambda job: KEYED[kind](clicks(job)))
    assert "'x' uses column 'whom', but its input has at, who, amount, tags" in message
    assert "name one of these, or add the column in a map before it" in message


KEYLESS = {
    "aggregate": lambda stream: stream.aggregate("x", key=(), n=count()),
    "window": lambda stream: stream.window("x", "1s", key=(), n=count()),
    "session": lambda stream: stream.session("x", "1s", key=(), n=count()),
    "join": lambda stream: stream.join("x", clicks(stream.builder, "views"), on=(), within="1s"),
    "process": lambda stream: stream.process("x", print, key=(), schema={"n": pl.Int64}, state={"n": value_of(pl.Int64)}),
}


@pytest.mark.parametrize("kind", sorted(KEYLESS))
def test_a_keyed_operator_without_key_is_refused(kind):
    """Not when it runs, but when it is described."""
    assert "at least one key column" in refusal(lambda job: KEYLESS[kind](clicks(job)))


TIMED = {
    "window": lambda stream: stream.window("x", "1s", key="who", n=count()),
    "session": lambda stream: stream.session("x", "1s", key="who", n=count()),
    "maintain": lambda stream: stream.builder.maintain("x", stream, key="who"),
    "join": lambda stream: stream.join("x", clicks(stream.builder, "views"), on="who", within="1s"),
}


@pytest.mark.parametrize("kind", sorted(TIMED))
def test_an_operator_that_needs_event_time_says_how_to_declare_it(kind):
    """A source without event time cannot be windowed."""
    message = refusal(lambda job: TIMED[kind](clicks(job, event_time=None)))
    assert "needs event time, but its input declares none: pass event_time=... to the source or the map" in message


MISMATCHES = {
    "union": (
        lambda job, stream: job.union("x", stream, stream.map("y", "at", "who")),
        "'y' has (at: Datetime(time_unit='us', time_zone=None), who: String), but 'clicks' has",
        "expected the same columns: align them with a map before",
    ),
    "maintain": (
        lambda job, stream: job.maintain("x", stream, stream.map("y", "at", "who"), key="who"),
        "'y' and 'clicks' differ",
        "expected the same columns",
    ),
    "join key": (
        lambda job, stream: stream.join("x", _renamed(stream), on="who", within=1),
        "key column 'who' is String in 'clicks' and Int64 in 'y'",
        "expected the same type: cast one in a map before",
    ),
    "sum of text": (
        lambda job, stream: stream.aggregate("x", key="who", n=sum_("who")),
        "sum or mean of column 'who' of type String",
        "expected a number: cast it in a map before",
    ),
    "mean of a list": (
        lambda job, stream: stream.window("x", "1s", key="who", n=mean("tags")),
        "type List(String)",
        "expected a number",
    ),
    "maximum of a list": (
        lambda job, stream: stream.aggregate("x", key="who", n=max_("tags")),
        "aggregate 'x': max_ of column 'tags' of type List(String)",
        "expected a number, string",
    ),
    "minimum of a struct": (
        lambda job, stream: stream.map("y", "at", "who", pl.struct("who", "amount").alias("s")).session(
            "x", 1, key="who", n=min_("s")
        ),
        "session window 'x': min_ of column 's' of type Struct",
        "take a field of it, or cast it, in a map before",
    ),
    "rank by several": (
        lambda job, stream: stream.top_k("x", 3, by=["amount", "at"], identity="who"),
        "top_k 'x' ranks by ['amount', 'at']",
        "expected the name of one column",
    ),
    "rank by a list": (
        lambda job, stream: stream.top_k("x", 3, by="tags", identity="who"),
        "top_k 'x' ranks by 'tags' of type List(String)",
        "expected a number, string",
    ),
    "declared columns of expressions": (
        lambda job, stream: stream.map("x", "who", schema={"who": pl.String, "n": pl.Int64}),
        "map 'x' makes (who: String) of an empty table, but schema= declares (who: String, n: Int64)",
        "expected the same columns in the same order",
    ),
    "declared columns of a function": (
        lambda job, stream: stream.flat_map("x", lambda table: table.select("who"), schema={"who": pl.Int64}),
        "flat_map 'x' makes (who: String) of an empty table, but schema= declares (who: Int64)",
        "correct one of them",
    ),
    "filter that changes columns": (
        lambda job, stream: stream.filter("x", lambda table: table.select("at", "who")),
        "filter 'x' makes (at: Datetime(time_unit='us', time_zone=None), who: String) of (at:",
        "expected a filter to keep the columns: use a map",
    ),
    "no columns": (
        lambda job, stream: stream.map("x", lambda table: table.select()),
        "map 'x' makes no columns",
        "expected at least one",
    ),
    "event time": (
        lambda job, stream: stream.map("x", "who", "amount", event_time="amount"),
        "event time 'amount' is Int64",
        "expected Datetime: convert it in a map and name it there",
    ),
    "missing event time": (
        lambda job, stream: stream.map("x", "who", event_time="when"),
        "uses column 'when', but its input has who",
        "name one of these",
    ),
    "expression": (
        lambda job, stream: stream.map("x", pl.col("whom") + 1),
        "map 'x' fails on an empty table with columns at, who, amount, tags",
        "expected an operation that fits these columns, or pass schema=...",
    ),
    "function": (
        lambda job, stream: stream.map("x", lambda frame: 7),
        "returned int; expected a polars.DataFrame",
        "or pass schema=...",
    ),
    "aggregate with a key's name": (
        lambda job, stream: stream.aggregate("x", key="who", who=count()),
        "aggregate 'x' would have two columns called 'who'",
        "expected one: rename the key column or the aggregate",
    ),
    "key with the name of a window's bound": (
        lambda job, stream: stream.map("m", pl.all(), pl.col("who").alias("window_end")).window(
            "x", "1s", key="window_end", n=count()
        ),
        "window 'x' would have two columns called 'window_end'",
        "expected one: rename the key column or the aggregate",
    ),
    "no aggregate": (
        lambda job, stream: stream.window("x", "1s", key="who"),
        "has no aggregate",
        "expected at least one, such as n=count()",
    ),
    "not an aggregate": (
        lambda job, stream: stream.aggregate("x", key="who", n=len),
        "n=<built-in",
        "expected an aggregate such as",
    ),
    "duration": (
        lambda job, stream: stream.window("x", "a while", key="who", n=count()),
        "the size of window 'x' is 'a while'",
        "expected a duration such as '10s'",
    ),
    "size of zero": (lambda job, stream: stream.window("x", 0, key="who", n=count()), "is 0", "expected more than zero"),
    "slide": (
        lambda job, stream: stream.window("x", "1s", "2s", key="who", n=count()),
        "slides by more than its size",
        "expected a slide of at most the size",
    ),
    "emit": (
        lambda job, stream: stream.window("x", "1s", key="who", emit="sometimes", n=count()),
        "emit is 'sometimes'",
        "expected one of update, final",
    ),
    "source": (lambda job, stream: job.source("x", ["a"]), "source 'x' is ['a']", "expected a connector such as files(...)"),
    "condition of a source": (
        lambda job, stream: job.source("x", scripted([[CLICKS]]), where="amount"),
        "source 'x': where is 'amount'",
        "expected a Polars condition",
    ),
    "condition on several rows": (
        lambda job, stream: job.source("x", scripted([[CLICKS]]), where=pl.col("amount") > pl.col("amount").mean()),
        "filter 'where of x'",
        "takes several rows together",
    ),
    "second join": (
        lambda job, stream: stream.join("y", clicks(job, "a"), on="who", within=1).join("x", _views(job), on="who", within=1),
        "join 'x' would have two columns called 'joined_at'",
        "pass time_column=... if it is 'joined_at'",
    ),
    "bad rows": (
        lambda job, stream: job.source("x", scripted([[CLICKS]]), bad_rows="drop"),
        "bad_rows is 'drop'",
        "expected 'fail' or 'route'",
    ),
    "bad rows of no source": (
        lambda job, stream: stream.bad_rows("x"),
        "'clicks' is not a source with bad_rows='route'",
        "pass that",
    ),
    "sink": (lambda job, stream: stream.query("x", sink="out"), "sink is 'out'", "expected a sink such as ParquetSink('out')"),
    "union of one": (lambda job, stream: job.union("x", stream), "has 1 streams", "expected at least two"),
    "maintain of none": (lambda job, stream: job.maintain("x", key="who"), "has no stream", "expected at least one"),
}


def _views(job: TopologyBuilder) -> Stream:
    return clicks(job, "b").map("views", "who", pl.col("at").alias("viewed_at"), event_time="viewed_at")


def test_a_second_join_may_name_its_time_column():
    """As the refusal without it says."""
    job = TopologyBuilder("joins")
    first = clicks(job).join("first", clicks(job, "a"), on="who", within="1s")
    second = first.join("second", _views(job), on="who", within="1s", time_column="all_at")
    assert second.shape.event_time == "all_at"
    assert {"joined_at", "all_at"} <= set(second.shape.schema)


def test_a_query_is_refused_on_the_line_that_makes_it():
    """Not only when the topology is built; what was refused leaves nothing behind."""
    job = TopologyBuilder("queries")
    stream = clicks(job)
    for priority in (0, 11, 1.5, True, "high"):
        with pytest.raises(TopologyError, match=r"query 'clicks' has priority .*; expected a whole number from 1"):
            stream.query(priority=priority)
    with pytest.raises(TopologyError, match="a query is called 'a query'"):
        stream.query("a query")
    stream.query(priority=10)
    with pytest.raises(TopologyError, match="two queries are called 'clicks'"):
        stream.query()
    assert list(job.build().queries) == ["clicks"]


def _renamed(stream: Stream) -> Stream:
    return stream.map("y", "at", pl.col("amount").alias("who"))


@pytest.mark.parametrize("case", sorted(MISMATCHES))
def test_a_mismatch_that_can_be_known_early_is_refused_when_it_is_described(case):
    """The message says what came and what was expected."""
    describe, got, expected = MISMATCHES[case]
    message = refusal(lambda job: describe(job, clicks(job)))
    assert got in message and expected in message, message


def test_a_topology_is_immutable_ordered_and_knows_its_consumers():
    """Operators stand in topological order whatever the order in which they were given."""
    made = build(Plain("b", ("a",)), Plain("c", ("a", "b")), Plain("a", ()), queries=[Query("out", "c", 3)])
    assert list(made.operators) == ["a", "b", "c"]
    assert made.consumers == {"a": ("b", "c"), "b": ("c",), "c": ()}
    assert made.upstream("b") == {"a", "b"}
    with pytest.raises(FrozenInstanceError):
        made.name = "other"


def test_a_query_is_of_the_class_of_its_most_general_operator():
    """A window over a function that is not deterministic is not deterministic either."""
    job = TopologyBuilder("job")
    stream = clicks(job)
    stream.map("plain", "at", "who").window("counts", "1s", key="who", n=count()).query()
    stream.map("dice", lambda frame: frame, deterministic=False).aggregate("totals", key="who", n=max_("amount")).query()
    made = job.build()
    assert made.determinism("counts") is Determinism.CONVERGENT
    assert made.determinism("totals") is Determinism.ARBITRARY


def test_a_short_description_makes_two_windows_and_two_queries_with_priorities():
    """About twenty lines are enough for source, parser, windows and queries."""
    job = TopologyBuilder("trending", key_groups=4)
    tags = clicks(job).flat_map("parse", pl.col("tags").alias("tag"), "at")
    tags.window("short", "10s", "5s", key="tag", n=count()).query("busy", priority=9, sink=MemorySink())
    tags.window("long", "60s", "10s", key="tag", n=count()).top_k(
        "best", 3, by="n", per="window_end", identity="tag", expire="window_end"
    ).query("leaders", priority=2)
    made = job.build()
    assert {name: query.priority for name, query in made.queries.items()} == {"busy": 9, "leaders": 2}
    assert made.shapes["best"].schema.names() == ["window_end", "rank", "tag", "window_start", "n"]


def test_building_a_topology_imports_no_spark():
    """Describing a job must not start, or even load, Spark."""
    code = """
import sys
import polars as pl
from resurge import TopologyBuilder, count, posts, files, rate, ParquetSink
job = TopologyBuilder("trending")
tags = job.source("posts", posts(total=10), event_time="time").flat_map("tags", pl.col("tags").alias("tag"), "time")
tags.window("busy", "10s", key="tag", n=count()).query(sink=ParquetSink("out"))
job.build()
assert not [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
