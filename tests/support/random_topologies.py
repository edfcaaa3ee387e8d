"""Random topologies as plain data, with two meanings: what the engine makes of them, and what plain Python does.

A stream is a nested tuple such as `("window", ("filter", ("source", 0)), 5, 2, "sum")`. Every stream has the columns `at`,
`who` and `amount`, so that any operator can follow any other; an ending is the last operator of a query. The reference
computes on lists of `(second, who, amount)` and knows nothing of epochs, partitions or watermarks.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import count as numbers
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import strategies as st

from resurge.api.builder import Stream, TopologyBuilder
from resurge.operators.aggregates import Aggregate, count, max_, mean, min_, sum_
from resurge.operators.keyed_state import map_of

SCHEMA = pl.Schema({"at": pl.Datetime("us"), "who": pl.String, "amount": pl.Int64})
START_S = 1_704_067_200
BUCKET_S = 10
Spec = tuple[Any, ...]
Row = tuple[int, str | None, int]

AGGREGATES: dict[str, tuple[Aggregate, Callable[[list[int]], int]]] = {
    "count": (count(), len),
    "sum": (sum_("amount"), sum),
    "min": (min_("amount"), min),
    "max": (max_("amount"), max),
}


def time_of(second: int) -> datetime:
    """A second of the reference as the engine's event time."""
    return datetime(1970, 1, 1) + timedelta(seconds=second)


def frame_of(rows: Iterable[Row]) -> pl.DataFrame:
    """Reference rows as a table."""
    return pl.DataFrame([(time_of(at), who, amount) for at, who, amount in rows], schema=SCHEMA, orient="row")


# What may be drawn

_kinds = st.sampled_from(sorted(AGGREGATES))
_spans = st.sampled_from([(4, 4), (6, 2), (5, 3), (10, 5)])


def streams(depth: int) -> st.SearchStrategy[Spec]:
    """Streams of up to so many operators after one another; each row comes out once, so anything may follow."""
    source = st.tuples(st.just("source"), st.integers(0, 1))
    if depth == 0:
        return source
    given, other = streams(depth - 1), streams(max(0, depth - 2))
    return st.one_of(
        st.tuples(st.sampled_from(["map", "filter", "filter_function", "flat_map", "process"]), given),
        st.tuples(st.just("union"), given, other),
        st.builds(lambda s, span, kind: ("window", s, *span, kind), given, _spans, _kinds),
        st.tuples(st.just("session"), given, st.sampled_from([2, 5]), _kinds),
        st.tuples(
            st.just("join"),
            given,
            other,
            st.sampled_from(["within", "window"]),
            st.integers(1, 4),
            st.sampled_from(["inner", "left"]),
        ),
    )


def endings(depth: int) -> st.SearchStrategy[Spec]:
    """A stream, or an operator whose last word per key counts."""
    given = streams(depth - 1)
    window = st.builds(lambda s, span: ("updates", s, *span), given, _spans)
    return st.one_of(
        streams(depth),
        window,
        st.tuples(st.sampled_from(["aggregate", "top_k", "maintain"]), given),
        st.tuples(st.just("session_updates"), given, st.sampled_from([2, 5])),
        st.tuples(st.sampled_from(["ranking", "kept", "recount"]), window),
    )


def is_cut_independent(spec: Spec) -> bool:
    """Counting updates counts epochs too: only this depends on where the epochs are cut."""
    return spec[0] != "recount"


# What the engine makes of a stream


class Buckets:
    """Counts rows per bucket of event time, and tells each count when the bucket is over."""

    def on_rows(self, key: tuple[Any, ...], rows: pl.DataFrame, state: Any, timers: Any) -> None:
        """Count, and ask to be called at each bucket's end."""
        for at in rows["at"]:
            second = int((at - datetime(1970, 1, 1)).total_seconds())
            end = (second // BUCKET_S + 1) * BUCKET_S
            state["counts"][end] = state["counts"].get(end, 0) + 1
            timers.set(time_of(end))

    def on_timer(self, key: tuple[Any, ...], time: datetime, state: Any, timers: Any) -> list[dict[str, Any]]:
        """The bucket is over."""
        end = int((time - datetime(1970, 1, 1)).total_seconds())
        return [{"at": time, "who": key[0], "amount": state["counts"].pop(end)}]


class Describer:
    """Builds a topology from specs."""

    def __init__(self, job: TopologyBuilder, sources: list[Stream]) -> None:
        self.job = job
        self.sources = sources
        self.numbers = numbers(1)

    def stream(self, spec: Spec) -> Stream:
        """The operators of a spec."""
        kind, *rest = spec
        if kind == "source":
            return self.sources[rest[0] % len(self.sources)]
        given = self.stream(rest[0])
        return getattr(self, f"_{kind}")(f"{kind}-{next(self.numbers)}", given, *rest[1:])

    def _map(self, name: str, given: Stream) -> Stream:
        return given.map(name, "at", "who", pl.col("amount") + 1)

    def _filter(self, name: str, given: Stream) -> Stream:
        return given.filter(name, pl.col("amount") % 2 == 0)

    def _filter_function(self, name: str, given: Stream) -> Stream:
        return given.filter(name, lambda rows: rows.filter(pl.col("amount") % 3 != 0))

    def _flat_map(self, name: str, given: Stream) -> Stream:
        twice = pl.concat_list("amount", pl.col("amount") + 5).alias("amount")
        return given.flat_map(name, lambda rows: rows.with_columns(twice).explode("amount"))

    def _union(self, name: str, given: Stream, other: Spec) -> Stream:
        return self.job.union(name, given, self.stream(other))

    def _process(self, name: str, given: Stream) -> Stream:
        state = {"counts": map_of(pl.Int64, pl.Int64)}
        return given.process(name, Buckets, key="who", schema=SCHEMA, state=state, event_time="at")

    def _window(self, name: str, given: Stream, size: int, slide: int, kind: str) -> Stream:
        return self._plain(name, given.window(f"{name}-", size, slide, key="who", emit="final", amount=AGGREGATES[kind][0]))

    def _session(self, name: str, given: Stream, gap: int, kind: str) -> Stream:
        return self._plain(name, given.session(f"{name}-", gap, key="who", emit="final", amount=AGGREGATES[kind][0]))

    def _plain(self, name: str, windows: Stream) -> Stream:
        return windows.map(name, pl.col("window_end").alias("at"), "who", "amount", event_time="at")

    def _join(self, name: str, given: Stream, other: Spec, how_near: str, distance: int, how: str) -> Stream:
        joined = given.join(f"{name}-", self.stream(other), on="who", how=how, **{how_near: distance})  # type: ignore[arg-type]
        amount = pl.col("amount") + pl.col("amount_right").fill_null(0)
        return joined.map(name, pl.col("joined_at").alias("at"), "who", amount, event_time="at")

    def _updates(self, name: str, given: Stream, size: int, slide: int) -> Stream:
        return given.window(name, size, slide, key="who", n=count(), total=sum_("amount"), average=mean("amount"))

    def _session_updates(self, name: str, given: Stream, gap: int) -> Stream:
        return given.session(name, gap, key="who", n=count(), most=max_("amount"))

    def _aggregate(self, name: str, given: Stream) -> Stream:
        return given.aggregate(name, key="who", n=count(), total=sum_("amount"), least=min_("amount"), average=mean("amount"))

    def _top_k(self, name: str, given: Stream) -> Stream:
        return given.top_k(name, 2, by="amount", per="who", identity=("at", "amount"))

    def _maintain(self, name: str, given: Stream) -> Stream:
        return self.job.maintain(name, given, key="who", identity=("at", "amount"))

    def _ranking(self, name: str, given: Stream) -> Stream:
        return given.top_k(name, 2, by="n", per="window_end", identity="who", expire="window_end")

    def _kept(self, name: str, given: Stream) -> Stream:
        return self.job.maintain(name, given, key="who", identity="window_start", retention=5)

    def _recount(self, name: str, given: Stream) -> Stream:
        return given.aggregate(name, key="window_start", n=count(), total=sum_("n"))


# What plain Python makes of it


def reference(spec: Spec, inputs: list[list[Row]]) -> list[Row]:
    """The rows of a stream."""
    kind, *rest = spec
    if kind == "source":
        return inputs[rest[0] % len(inputs)]
    rows = reference(rest[0], inputs)
    if kind == "map":
        return [(at, who, amount + 1) for at, who, amount in rows]
    if kind == "filter":
        return [row for row in rows if row[2] % 2 == 0]
    if kind == "filter_function":
        return [row for row in rows if row[2] % 3 != 0]
    if kind == "flat_map":
        return [(at, who, made) for at, who, amount in rows for made in (amount, amount + 5)]
    if kind == "union":
        return rows + reference(rest[1], inputs)
    if kind == "process":
        return [(end, who, n) for (who, end), n in Counter((who, (at // BUCKET_S + 1) * BUCKET_S) for at, who, _ in rows).items()]
    if kind == "window":
        size, slide, name = rest[1:]
        return [(start + size, who, AGGREGATES[name][1](found)) for (who, start), found in windows(rows, size, slide).items()]
    if kind == "session":
        gap, name = rest[1:]
        return [(last + gap, who, AGGREGATES[name][1](found)) for (who, _, last), found in sessions(rows, gap).items()]
    return joined(rows, reference(rest[1], inputs), *rest[2:])


def windows(rows: list[Row], size: int, slide: int) -> dict[tuple[str | None, int], list[int]]:
    """The amounts in each window of each key."""
    found: dict[tuple[str | None, int], list[int]] = defaultdict(list)
    for at, who, amount in rows:
        start = at // slide * slide
        while start + size > at:
            found[who, start].append(amount)
            start -= slide
    return found


def sessions(rows: list[Row], gap: int) -> dict[tuple[str | None, int, int], list[int]]:
    """The amounts in each session of each key, by its first and last time."""
    found = {}
    for who in {row[1] for row in rows}:
        mine = sorted((row for row in rows if row[1] == who), key=lambda row: row[0])
        cuts = [0, *(i + 1 for i, (one, two) in enumerate(pairwise(mine)) if two[0] - one[0] >= gap), len(mine)]
        for low, high in pairwise(cuts):
            found[who, mine[low][0], mine[high - 1][0]] = [amount for _, _, amount in mine[low:high]]
    return found


def joined(left: list[Row], right: list[Row], how_near: str, distance: int, how: str) -> list[Row]:
    """Pairs of equal, known key that are near, and for a left join the left rows without one."""
    made: list[Row] = []
    for at, who, amount in left:
        near = [
            (other_at, other)
            for other_at, other_who, other in right
            if who is not None
            and who == other_who
            and (abs(at - other_at) <= distance if how_near == "within" else at // distance == other_at // distance)
        ]
        made += [(max(at, other_at), who, amount + other) for other_at, other in near]
        if not near and how == "left":
            made.append((at, who, amount))
    return made


def expected(spec: Spec, inputs: list[list[Row]]) -> Counter[tuple[Any, ...]]:
    """What a query shows in the end, as a multiset of plain rows."""
    kind = spec[0]
    if kind in ("ranking", "kept"):
        return _of_updates(kind, spec[1], inputs)
    if kind not in ENDINGS:
        return Counter(reference(spec, inputs))
    rows = reference(spec[1], inputs)
    if kind == "updates":
        found = windows(rows, *spec[2:])
        return Counter((who, start, start + spec[2], len(a), sum(a), sum(a) / len(a)) for (who, start), a in found.items())
    if kind == "session_updates":
        return Counter((who, first, last + spec[2], len(a), max(a)) for (who, first, last), a in sessions(rows, spec[2]).items())
    by_key: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        by_key[row[1]].append(row)
    if kind == "aggregate":
        amounts = {who: [row[2] for row in mine] for who, mine in by_key.items()}
        return Counter((who, len(a), sum(a), min(a), sum(a) / len(a)) for who, a in amounts.items())
    if kind == "top_k":
        best = {who: sorted({(-amount, at) for at, _, amount in mine})[:2] for who, mine in by_key.items()}
        return Counter((who, rank, at, -amount) for who, mine in best.items() for rank, (amount, at) in enumerate(mine, 1))
    return Counter(set(rows))


def _of_updates(kind: str, window: Spec, inputs: list[list[Row]]) -> Counter[tuple[Any, ...]]:
    final = expected(window, inputs)
    if kind == "kept":
        return final
    by_end: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in final:
        by_end[row[2]].append(row)
    made: Counter[tuple[Any, ...]] = Counter()
    for end, rows in by_end.items():
        ordered = sorted(rows, key=lambda row: (-row[3], row[0] is None, row[0] or ""))[:2]
        made.update((end, rank, who, start, n, total, mean_) for rank, (who, start, _, n, total, mean_) in enumerate(ordered, 1))
    return made


# How the engine's output is read

ENDINGS: dict[str, tuple[str, ...]] = {
    "updates": ("who", "window_start"),
    "aggregate": ("who",),
    "top_k": ("who", "rank"),
    "maintain": ("who", "at", "amount"),
    "session_updates": ("who", "window_start"),
    "ranking": ("window_end", "rank"),
    "kept": ("who", "window_start"),
}


def last_word(spec: Spec, shown: pl.DataFrame) -> Counter[tuple[Any, ...]]:
    """What the shown rows, which come in order, say in the end: all of them, or the last per key."""
    plain = shown.with_columns(pl.selectors.datetime().dt.epoch("s")).drop("epoch")
    if spec[0] not in ENDINGS:
        return Counter(plain.rows())
    key = [plain.columns.index(name) for name in ENDINGS[spec[0]]]
    final: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in plain.rows():
        if spec[0] == "session_updates" and row[-1]:
            final.pop(tuple(row[i] for i in key))
        else:
            final[tuple(row[i] for i in key)] = row
    dropped = {"session_updates": plain.width - 1, "maintain": 0, "kept": 0}.get(spec[0])
    return Counter(tuple(value for i, value in enumerate(row) if i != dropped) for row in final.values())
