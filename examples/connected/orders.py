"""Kafka in, windowed counts, PostgreSQL and Kafka out.

First terminal, with servers on this machine:
    eval "$(scripts/services.sh start)"
    resurge cluster start --nodes 2
    python examples/connected/orders.py fill
    resurge run examples/connected/orders.py --master spark://... --checkpoint out/orders

Second terminal: nodes die and come, and no minute is ever missing or counted twice.
    eval "$(scripts/services.sh env)"
    python examples/connected/second_terminal.py out/orders

`python examples/connected/orders.py` runs the job once on local Spark, and prints what the servers have.
"""

import json
import os
import sys
from datetime import datetime, timedelta

import polars as pl
import psycopg
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from resurge import KafkaSink, PostgresSink, TopologyBuilder, count, kafka, run, sum_

SERVERS, DSN = os.environ.get("RESURGE_KAFKA", "127.0.0.1:9092"), os.environ.get("RESURGE_POSTGRES", "dbname=postgres")
NAME = os.environ.get("RESURGE_EXAMPLE", "sales")
SCHEMA = {"at": pl.Datetime("us"), "shop": pl.String, "amount": pl.Int64}

topology = TopologyBuilder("orders", key_groups=4)
orders = topology.source("orders", kafka(f"{NAME}-orders", SERVERS, SCHEMA, bad_rows="route"), event_time="at", watermark="5s")
per_minute = orders.window("per-minute", "1m", key="shop", emit="final", n=count(), total=sum_("amount"))
per_minute.query("table", priority=8, sink=PostgresSink(NAME, DSN, key=["shop", "window_start"]))
per_minute.query("topic", priority=4, sink=KafkaSink(f"{NAME}-minutes", SERVERS, key="shop"))
orders.bad_rows("bad").query("refused", priority=1, sink=KafkaSink(f"{NAME}-refused", SERVERS))


def send(minute: int) -> None:
    """Write the 600 orders of one minute after noon."""
    producer = Producer({"bootstrap.servers": SERVERS})
    for number in range(minute * 600, minute * 600 + 600):
        at = datetime(2024, 1, 1, 12) + timedelta(seconds=number / 10)
        order = {"at": at.isoformat(), "shop": ("north", "south", "west")[number % 3], "amount": number % 50}
        producer.produce(f"{NAME}-orders", json.dumps(order), partition=number % 2)
    producer.flush()


def fill() -> None:
    """Make the topics and write the orders of three minutes, and one that is no order."""
    admin = AdminClient({"bootstrap.servers": SERVERS})
    wanted = [NewTopic(f"{NAME}-{topic}", 2, 1) for topic in ("orders", "minutes", "refused")]
    for made in admin.create_topics(wanted).values():
        made.result()
    for minute in range(3):
        send(minute)
    producer = Producer({"bootstrap.servers": SERVERS})
    producer.produce(f"{NAME}-orders", '{"shop": "east", "amount": "many"}', partition=0)
    producer.flush()


def show() -> None:
    """What the servers have."""
    with psycopg.connect(DSN) as connection:
        for shop, start, n, total in connection.execute(f'SELECT shop, window_start, n, total FROM "{NAME}" ORDER BY 2, 1'):
            print(f"{start:%H:%M} {shop}: {n} orders, {total}")
    reader = {"group.id": "show", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    for topic in ("minutes", "refused"):
        consumer = Consumer({"bootstrap.servers": SERVERS, **reader})
        consumer.subscribe([f"{NAME}-{topic}"])
        found, ended = [], 0
        while ended < 2:
            message = consumer.poll(30)
            if message is None or message.error() is not None:
                ended += 1
            else:
                found.append(json.loads(message.value()))
        consumer.close()
        print(f"{topic}: {len(found)} records", *(row["error"] for row in found if "error" in row))


if __name__ == "__main__":
    if sys.argv[1:] in ([], ["fill"]):
        fill()
    if sys.argv[1:] == []:
        run(topology, interval=0, until_idle=True, drain=True)
        show()
