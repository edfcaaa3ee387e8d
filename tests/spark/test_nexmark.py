"""Nexmark queries 0 to 4 on Spark, on generated auctions against DuckDB, and on RisingWave's test data where it is there."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from resurge.api.builder import Stream, TopologyBuilder
from resurge.connectors.files import files
from resurge.connectors.sinks import MemorySink
from resurge.operators.aggregates import max_
from resurge.operators.keyed_state import map_of
from tests.spark.conftest import RunOnSpark
from tests.support.generated import write_auctions
from tests.support.real_data import real

TIME = pl.Datetime("ms")
PERSON = {
    "id": pl.Int64,
    "name": pl.String,
    "email_address": pl.String,
    "credit_card": pl.String,
    "city": pl.String,
    "state": pl.String,
    "date_time": TIME,
    "extra": pl.String,
}
AUCTION = {
    "id": pl.Int64,
    "item_name": pl.String,
    "description": pl.String,
    "initial_bid": pl.Int64,
    "reserve": pl.Int64,
    "date_time": TIME,
    "expires": TIME,
    "seller": pl.Int64,
    "category": pl.Int64,
    "extra": pl.String,
}
BID = {
    "auction": pl.Int64,
    "bidder": pl.Int64,
    "price": pl.Int64,
    "channel": pl.String,
    "url": pl.String,
    "date_time": TIME,
    "extra": pl.String,
}
AUCTIONS_OF_QUERY_2 = [1007, 1020, 2001, 2019, 2087]


def average_of_highest() -> Callable[..., list[dict[str, Any]]]:
    """A category's average over its auctions, each by the newest highest price that was told of it.

    Made here, and not at the top of the module, so that it travels to the executors by value: they cannot import this file.
    """

    def on_rows(key: tuple[Any, ...], rows: pl.DataFrame, state: Any, timers: Any) -> list[dict[str, Any]]:
        for auction, price in rows.select("id", "price").iter_rows():
            state["highest"][auction] = price
        return [{"category": key[0], "average": sum(state["highest"].values()) / len(state["highest"])}]

    return on_rows


def queries(job: TopologyBuilder, folder: Path) -> dict[str, Stream]:
    """The five queries; the small files are read in several epochs."""

    def source(name: str, schema: dict[str, Any]) -> Stream:
        return job.source(name, files(folder / f"{name}.csv", schema=schema, max_rows_per_epoch=12), event_time="date_time")

    person, auction, bid = source("person", PERSON), source("auction", AUCTION), source("bid", BID)
    converted = (pl.col("price").cast(pl.Decimal(20, 3)) * pl.lit(Decimal("0.908"))).cast(pl.Decimal(20, 3)).alias("price")
    sellers = person.filter("near", pl.col("state").is_in(["or", "id", "ca"])).map(
        "sellers", "name", "city", "state", "date_time", pl.col("id").alias("seller")
    )
    offers = auction.filter("category10", pl.col("category") == 10).map("offers", "id", "seller", "date_time")
    lots = auction.map("lots", "id", "category", "expires", pl.col("date_time").alias("opened"))
    prices = bid.map("prices", "price", pl.col("auction").alias("id"), pl.col("date_time").alias("bid_at"))
    valid = lots.join("bids_of_lots", prices, on="id").filter("valid", pl.col("bid_at").is_between("opened", "expires"))
    highest = valid.aggregate("highest", key=("id", "category"), price=max_("price"))
    return {
        "q0": bid.map("q0", "auction", "bidder", "price", "date_time"),
        "q1": bid.map("q1", "auction", "bidder", converted, "date_time"),
        "q2": bid.filter("q2-only", pl.col("auction").is_in(AUCTIONS_OF_QUERY_2)).map("q2", "auction", "price"),
        "q3": offers.join("q3-joined", sellers, on="seller").map("q3", "name", "city", "state", "id"),
        "q4": highest.process(
            "q4",
            average_of_highest(),
            key="category",
            schema={"category": pl.Int64, "average": pl.Float64},
            state={"highest": map_of(pl.Int64, pl.Int64)},
        ),
    }


@dataclass(frozen=True)
class Auctions:
    """Input files, what the queries published, and what they should have."""

    folder: Path
    published: MemorySink
    expected: Callable[[str], Counter[tuple[Any, ...]]]


@pytest.fixture(
    scope="module", params=["generated", *real("nexmark/bid.csv")], ids=lambda kind: "real" if kind != "generated" else kind
)
def auctions(request: pytest.FixtureRequest, run_on_spark: RunOnSpark, tmp_path_factory: pytest.TempPathFactory) -> Auctions:
    """All five queries, run as one topology."""
    work = tmp_path_factory.mktemp("nexmark")
    is_generated = request.param == "generated"
    folder = write_auctions(work / "input", seed=5) if is_generated else request.param.parent
    sink = MemorySink()
    job = TopologyBuilder("nexmark", key_groups=3)
    for name, stream in queries(job, folder).items():
        stream.query(name, sink=sink)
    run_on_spark(job.build(), work)
    return Auctions(folder, sink, (lambda query: computed(query, folder)) if is_generated else lambda query: kept(query, folder))


def plain(field: Any) -> Any:
    """A field of a result, or of an expected line, as a value that compares: number, time or text."""
    if isinstance(field, datetime):
        return field
    text = str(field)
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return Decimal(text).normalize()
    return datetime.fromisoformat(text) if re.match(r"\d{4}-\d\d-\d\d ", text) else text


def kept(query: str, folder: Path) -> Counter[tuple[Any, ...]]:
    """The lines of an expected result, whose fields are apart by a tab or several spaces."""
    lines = (folder / "expected" / f"{query}.txt").read_text().splitlines()
    return Counter(tuple(plain(field) for field in re.split(r"\t| {2,}", line)) for line in lines if line.strip())


def computed(query: str, folder: Path) -> Counter[tuple[Any, ...]]:
    """What DuckDB makes of the same files, in one go."""
    import duckdb

    connection = duckdb.connect()
    for table in ("person", "auction", "bid"):
        connection.execute(f"create view {table} as select * from read_csv('{folder / table}.csv')")
    rows = connection.sql(SQL[query]).fetchall()
    connection.close()
    return Counter(tuple(plain(field) for field in row) for row in rows)


SQL = {
    "q0": "select auction, bidder, price, date_time from bid",
    "q1": "select auction, bidder, cast(cast(price as decimal(20, 3)) * 0.908 as decimal(20, 3)), date_time from bid",
    "q2": f"select auction, price from bid where auction in {tuple(AUCTIONS_OF_QUERY_2)}",
    "q3": "select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id "
    "where a.category = 10 and p.state in ('or', 'id', 'ca')",
    "q4": "select category, avg(final) from (select a.id, a.category, max(b.price) as final from auction a join bid b "
    "on a.id = b.auction and b.date_time between a.date_time and a.expires group by a.id, a.category) group by category",
}


@pytest.mark.parametrize("query", ["q0", "q1", "q2", "q3"])
def test_a_query_that_only_appends_gives_the_expected_rows(query: str, auctions: Auctions) -> None:
    """Compared as multisets."""
    wanted = auctions.expected(query)
    assert wanted
    assert Counter(tuple(plain(field) for field in row) for row in auctions.published.table(query).rows()) == wanted


def test_the_average_of_final_prices_ends_at_the_expected_value_per_category(auctions: Auctions) -> None:
    """Query 4 updates its averages; the last of each category is the result."""
    table = auctions.published.table("q4", epoch=True)
    assert table["epoch"].n_unique() > 1, "expected the averages to be updated over several epochs"
    final = {category: average for _, category, average in table.rows()}
    wanted = {int(category): float(average) for category, average in auctions.expected("q4")}
    assert final == pytest.approx(wanted, abs=0.005)
