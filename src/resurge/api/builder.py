"""Describe a topology: streams that know their shape, so that a mistake is refused on the line that makes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from resurge.connectors.contracts import BAD_ROW_SCHEMA, BadRowPolicy, Sink, Source
from resurge.connectors.sinks import MemorySink
from resurge.errors import TopologyError
from resurge.model.durations import Duration, microseconds, positive_microseconds
from resurge.model.names import checked_name
from resurge.model.operator import Determinism, Operator, StreamShape
from resurge.model.topology import Query, Topology, build_topology, check_query
from resurge.operators.aggregate import KeyedAggregate
from resurge.operators.aggregates import Aggregate, checked_aggregates
from resurge.operators.join import JOIN_TIME, IntervalJoin
from resurge.operators.keyed_process import KeyedProcess
from resurge.operators.lookup import LookupJoin
from resurge.operators.maintain import Maintain
from resurge.operators.sessions import SessionWindow
from resurge.operators.stateless import BadRows, LateSide, SourceOperator, Transform, Union
from resurge.operators.table_process import TableProcess
from resurge.operators.top_k import TopK
from resurge.operators.windows import LateRows, Window, WindowSpan

Columns = str | Sequence[str]
DEFAULT_KEY_GROUPS = 64


class TopologyBuilder:
    """Collects operators and queries; `build` checks the whole and freezes it.

    >>> import polars as pl
    >>> from resurge import TopologyBuilder, count, posts
    >>> job = TopologyBuilder("trending", key_groups=4)
    >>> source = job.source("posts", posts(total=1000), event_time="time")
    >>> tags = source.flat_map("tags", "time", pl.col("tags").alias("tag"))
    >>> tags.window("busy", "10s", key="tag", n=count()).query(priority=5)
    >>> sorted(job.build().operators)
    ['busy', 'posts', 'tags']
    """

    def __init__(self, name: str, *, key_groups: int = DEFAULT_KEY_GROUPS) -> None:
        self.name = checked_name(name, "the topology")
        self.key_groups = key_groups
        self._operators: dict[str, Operator] = {}
        self._shapes: dict[str, StreamShape] = {}
        self._queries: list[Query] = []

    def source(
        self,
        name: str,
        source: Source,
        *,
        event_time: str | None = None,
        watermark: Duration = 0,
        bad_rows: BadRowPolicy | None = None,
        where: pl.Expr | None = None,
    ) -> "Stream":
        """Rows enter here; rows may come `watermark` later than the newest event time and still be in time.

        Only rows for which `where` is true are taken; it is asked before a row must have an event time.
        """
        if not isinstance(source, Source):
            raise TopologyError(
                f"source {name!r} is {source!r}; expected a connector such as files(...), rate(...) or PythonSource(...)"
            )
        if bad_rows not in (None, "fail", "route"):
            raise TopologyError(f"source {name!r}: bad_rows is {bad_rows!r}; expected 'fail' or 'route'")
        policy = bad_rows or source.bad_rows
        source = source.with_bad_rows(policy)
        delay = microseconds(watermark, f"the watermark of source {name!r}")
        return self._add(SourceOperator(name, (), source, source.schema(), event_time, delay, policy == "route", where))

    def union(self, name: str, *streams: "Stream") -> "Stream":
        """All rows of several streams of the same schema."""
        if len(streams) < 2:
            raise TopologyError(f"union {name!r} has {len(streams)} streams; expected at least two")
        return self._add(Union(name, _names(streams)))

    def maintain(self, name: str, *streams: "Stream", key: Columns, identity: Columns = (), retention: Duration = 0) -> "Stream":
        """The newest row per key and identity of each of these streams."""
        if not streams:
            raise TopologyError(f"maintain {name!r} has no stream; expected at least one")
        time = streams[0].shape.time_column(f"maintain {name!r}")
        kept = microseconds(retention, f"the retention of {name!r}")
        return self._add(Maintain(name, _names(streams), _columns(key), _columns(identity), time, kept))

    def build(self) -> Topology:
        """The finished topology."""
        return build_topology(self.name, self.key_groups, list(self._operators.values()), self._queries)

    def _add(self, operator: Operator) -> "Stream":
        checked_name(operator.name, "an operator")
        if operator.name in self._operators:
            raise TopologyError(f"two operators are called {operator.name!r}; expected distinct names: rename one of them")
        self._shapes[operator.name] = operator.shape([self._shapes[name] for name in operator.inputs])
        self._operators[operator.name] = operator
        return Stream(self, operator.name)


@dataclass(frozen=True)
class Stream:
    """The output of one operator."""

    builder: TopologyBuilder
    name: str

    @property
    def shape(self) -> StreamShape:
        """Its columns and event time."""
        return self.builder._shapes[self.name]

    def map(
        self,
        name: str,
        *how: Any,
        schema: Any = None,
        event_time: str | None = None,
        deterministic: bool = True,
        per_row: bool = False,
    ) -> "Stream":
        """Other columns: Polars expressions, as in `select`, or one function from table to table.

        `per_row` declares that the function makes one row of each row, in their order, whichever other rows are in the table:
        below a keyed operator it is then called once for all key groups of a slot instead of once for each.
        """
        declared = {"event_time": event_time, "deterministic": deterministic, "per_row": per_row}
        return self._transform("map", name, how, schema, **declared)

    def flat_map(
        self, name: str, *how: Any, schema: Any = None, event_time: str | None = None, deterministic: bool = True
    ) -> "Stream":
        """Several rows (or none) for each row: expressions whose lists become one row per element, or one function."""
        return self._transform("flat_map", name, how, schema, event_time=event_time, deterministic=deterministic)

    def filter(self, name: str, *how: Any, deterministic: bool = True) -> "Stream":
        """Only some rows: Polars conditions, or one function from table to table."""
        return self._transform("filter", name, how, None, deterministic=deterministic)

    def aggregate(self, name: str, *, key: Columns, **aggregates: Aggregate) -> "Stream":
        """Running aggregates per key; a key's new values come out whenever they change."""
        return self._add(KeyedAggregate(name, (self.name,), _columns(key), checked_aggregates(aggregates, f"aggregate {name!r}")))

    def window(
        self,
        name: str,
        size: Duration,
        slide: Duration | None = None,
        *,
        key: Columns,
        lateness: Duration = 0,
        emit: str = "update",
        **aggregates: Aggregate,
    ) -> "WindowStream":
        """Aggregates per key and window of event time: tumbling, or sliding when `slide` is given."""
        described = f"window {name!r}"
        size_us = positive_microseconds(size, f"the size of {described}")
        slide_us = size_us if slide is None else positive_microseconds(slide, f"the slide of {described}")
        span = WindowSpan(size_us, slide_us, microseconds(lateness, f"the lateness of {described}"))
        return self._add_with_side(
            Window(name, (self.name,), _columns(key), span, checked_aggregates(aggregates, described), emit)
        )

    def session(
        self, name: str, gap: Duration, *, key: Columns, lateness: Duration = 0, emit: str = "update", **aggregates: Aggregate
    ) -> "WindowStream":
        """Aggregates per key and session: rows less than `gap` apart belong together."""
        described = f"session window {name!r}"
        gap_us = positive_microseconds(gap, f"the gap of {described}")
        late_us = microseconds(lateness, f"the lateness of {described}")
        parts = checked_aggregates(aggregates, described)
        time = self.shape.time_column(described)
        return self._add_with_side(SessionWindow(name, (self.name,), _columns(key), time, gap_us, parts, late_us, emit))

    def join(
        self,
        name: str,
        other: "Stream",
        *,
        on: Columns,
        within: Duration | None = None,
        window: Duration | None = None,
        lateness: Duration = 0,
        how: str = "inner",
        time_column: str = JOIN_TIME,
    ) -> "WindowStream":
        """Rows of both streams with equal keys, at most `within` apart, or in the same tumbling `window`.

        `time_column` is the name of the column with the later of the two event times, which the join adds.
        """
        apart = None if within is None else microseconds(within, f"within of join {name!r}")
        span = None if window is None else positive_microseconds(window, f"the window of join {name!r}")
        late_us = microseconds(lateness, f"the lateness of join {name!r}")
        times = (self.shape.event_time, other.shape.event_time)
        return self._add_with_side(
            IntervalJoin(name, (self.name, other.name), _columns(on), times, apart, span, late_us, how, time_column)
        )

    def lookup(self, name: str, table: Any, *, on: Columns, how: str = "left", refresh_epochs: int = 100) -> "Stream":
        """Rows with the columns of a table outside, such as postgres_lookup(...); read anew every so many epochs."""
        return self._add(LookupJoin(name, (self.name,), table, _columns(on), how, refresh_epochs))

    def top_k(
        self,
        name: str,
        k: int,
        *,
        by: str,
        per: Columns = (),
        identity: Columns,
        descending: bool = True,
        expire: str | None = None,
        lateness: Duration = 0,
    ) -> "WindowStream":
        """The k rows with the largest (or smallest) `by` of each group; a later row of the same identity replaces the earlier."""
        late_us = microseconds(lateness, f"the lateness of top_k {name!r}")
        return self._add_with_side(
            TopK(name, (self.name,), _columns(per), by, k, _columns(identity), descending, expire, late_us)
        )

    def process(
        self,
        name: str,
        handler: Any,
        *,
        key: Columns,
        schema: Mapping[str, Any],
        state: Mapping[str, Any],
        event_time: str | None = None,
        event_time_delay: Duration = 0,
        determinism: Determinism = Determinism.DETERMINISTIC,
    ) -> "Stream":
        """An operator of your own, called per key with keyed state (value, list, map) and event-time timers."""
        delay = microseconds(event_time_delay, f"the event-time delay of {name!r}")
        inputs, fields, time = (self.name,), tuple(state.items()), self.shape.event_time
        declared: dict[str, Any] = {"event_time": event_time, "event_time_delay_us": delay, "declared": determinism}
        return self._add(KeyedProcess(name, inputs, _columns(key), handler, pl.Schema(schema), fields, time, **declared))

    def process_table(  # noqa: PLR0913 (all but name and function are options)
        self,
        name: str,
        function: Callable[[pl.DataFrame, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]],
        *,
        key: Columns,
        schema: Mapping[str, Any],
        state: Mapping[str, Any],
        event_time: str | None = None,
        event_time_delay: Duration = 0,
        determinism: Determinism = Determinism.DETERMINISTIC,
        per_key: bool = False,
    ) -> "Stream":
        """An operator of your own, called per key group with the state rows of the keys present, as a table.

        `per_key` declares that what it makes of a key depends on the rows and the state of that key alone, and that the output
        has the key columns: it is then called once for all key groups of a slot, and its rows come out key by key.
        """
        delay = microseconds(event_time_delay, f"the event-time delay of {name!r}")
        output, columns = pl.Schema(schema), pl.Schema(state)
        declared: dict[str, Any] = {"event_time": event_time, "event_time_delay_us": delay, "declared": determinism}
        return self._add(TableProcess(name, (self.name,), _columns(key), function, output, columns, per_key, **declared))

    def bad_rows(self, name: str) -> "Stream":
        """The malformed rows of this source, which must have been made with bad_rows='route'."""
        operator = self.builder._operators[self.name]
        if not isinstance(operator, SourceOperator) or not operator.routes_bad_rows:
            raise TopologyError(f"{self.name!r} is not a source with bad_rows='route'; expected one: pass that to the source")
        return self._add(BadRows(name, (self.name,), BAD_ROW_SCHEMA))

    def query(self, name: str | None = None, *, priority: int = 1, sink: Sink | None = None) -> None:
        """Make this stream a query: its committed rows go to the sink (memory, unless another is given)."""
        if sink is not None and not isinstance(sink, Sink):
            raise TopologyError(f"query {name or self.name!r}: sink is {sink!r}; expected a sink such as ParquetSink('out')")
        query = Query(name or self.name, self.name, priority, sink if sink is not None else MemorySink())
        self.builder._queries = [*self.builder._queries, check_query(query, [known.name for known in self.builder._queries])]

    def _transform(self, kind: str, name: str, how: tuple[Any, ...], schema: Any, **declared: Any) -> "Stream":
        wanted = pl.Schema(schema) if schema is not None else None
        if len(how) == 1 and callable(how[0]) and not isinstance(how[0], pl.Expr):
            return self._add(Transform(name, (self.name,), kind, how[0], (), wanted, **declared))
        expressions = tuple(pl.col(item) if isinstance(item, str) else item for item in how)
        if not expressions or not all(isinstance(item, pl.Expr) for item in expressions):
            raise TopologyError(f"{kind} {name!r} got {how!r}; expected Polars expressions or one function from table to table")
        return self._add(Transform(name, (self.name,), kind, None, expressions, wanted, **declared))

    def _add(self, operator: Operator) -> "Stream":
        return self.builder._add(operator)

    def _add_with_side(self, operator: Operator) -> "WindowStream":
        made = self.builder._add(operator)
        return WindowStream(made.builder, made.name)


@dataclass(frozen=True)
class WindowStream(Stream):
    """The output of an operator that may come too late for some rows: these are a side output."""

    def late_rows(self, name: str, side: int = 0) -> Stream:
        """The input rows that came too late, as a stream of their own; `side` is the input, where there are two."""
        operator = self.builder._operators[self.name]
        if not 0 <= side < len(operator.inputs):
            raise TopologyError(f"late rows of {self.name!r}: side is {side}; expected 0 to {len(operator.inputs) - 1}")
        given = self.builder._shapes[operator.inputs[side]]
        if isinstance(operator, Window):
            return self._add(LateRows(name, operator.inputs, operator.span, given.time_column(f"window {self.name!r}")))
        return self._add(LateSide(name, (self.name,), given, side))


def _names(streams: Sequence[Stream]) -> tuple[str, ...]:
    return tuple(stream.name for stream in streams)


def _columns(columns: Columns) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)
