"""Alerts from sensors, with an operator of your own: state per sensor, and a timer that notices silence.

Run it from Python, `python examples/sensor_alerts.py`, or `resurge run examples/sensor_alerts.py --until-idle --drain`.
"""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from resurge import CallbackSink, TopologyBuilder, files, run, value_of

HOT_CELSIUS = 80.0
HOT_IN_A_ROW = 3
SILENCE = timedelta(seconds=30)


class Watch:
    """Three hot readings in a row are an alert; so is half a minute without any."""

    def on_row(self, key, row, state, timers):
        """A new reading of one sensor; readings and timers come in the order of event time."""
        time, celsius = row["time"], row["celsius"]
        hot = (state["hot"] or 0) + 1 if celsius >= HOT_CELSIUS else 0
        if hot == HOT_IN_A_ROW:
            yield {"sensor": key[0], "time": time, "alert": f"hot: {celsius} degrees, reading {hot} in a row"}
        if state["last_seen"] is not None:
            timers.delete(state["last_seen"] + SILENCE)
        state["hot"], state["last_seen"] = hot, time
        timers.set(time + SILENCE)

    def on_timer(self, key, time, state, timers):
        """No reading came in time."""
        last_seen: datetime = state["last_seen"]
        yield {"sensor": key[0], "time": time, "alert": f"silent since {last_seen:%H:%M:%S}"}


def show(epoch: int, alerts: pl.DataFrame) -> None:
    """Print the alerts of an epoch."""
    for row in alerts.sort("time", "sensor").rows(named=True):
        print(f"{row['time']:%H:%M:%S} {row['sensor']}: {row['alert']}")


topology = TopologyBuilder("sensors", key_groups=4)
readings = topology.source(
    "readings",
    files(
        str(Path(__file__).with_name("sensor_readings.csv")),
        schema={"time": pl.Datetime("us"), "sensor": pl.String, "celsius": pl.Float64},
        max_rows_per_epoch=15,
    ),
    event_time="time",
)
readings.process(
    "watch",
    Watch,
    key="sensor",
    schema={"sensor": pl.String, "time": pl.Datetime("us"), "alert": pl.String},
    state={"hot": value_of(pl.Int64), "last_seen": value_of(pl.Datetime("us"))},
).query("alerts", priority=9, sink=CallbackSink(show))

if __name__ == "__main__":
    run(topology, interval=0, until_idle=True, drain=True)
