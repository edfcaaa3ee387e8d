"""Numbers as people read them; the same words in the live view, the tables and the report."""

from resurge.telemetry.events import PartitionsGivenUp

NOT_KNOWN = "–"
MOST_NAMED = 5


def rows_in_words(rows: float | None) -> str:
    """A number of rows, shortened from ten thousand on.

    >>> rows_in_words(1234), rows_in_words(1_234_567)
    ('1,234', '1.23 M')
    """
    if rows is None:
        return NOT_KNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(rows) >= size and abs(rows) >= 10_000:
            return f"{rows / size:.3g} {unit}" if abs(rows) / size < 999.5 else f"{rows / size:.0f} {unit}"
    return f"{rows:,.0f}"


def bytes_in_words(size_bytes: float | None) -> str:
    """A size in bytes.

    >>> bytes_in_words(512), bytes_in_words(2_500_000)
    ('512 B', '2.5 MB')
    """
    if size_bytes is None:
        return NOT_KNOWN
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}" if size_bytes / size < 999.5 else f"{size_bytes / size:.0f} {unit}"
    return f"{size_bytes:.0f} B"


def seconds_in_words(seconds: float | None) -> str:
    """A duration.

    >>> seconds_in_words(0.0213), seconds_in_words(3.14159), seconds_in_words(200), seconds_in_words(90_000)
    ('21 ms', '3.14 s', '3 min 20 s', '1 d 1 h')
    """
    if seconds is None:
        return NOT_KNOWN
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    if seconds < 119.5:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size, unit, smaller_size, smaller in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds:.0f} s"


def given_up_in_words(event: PartitionsGivenUp) -> str:
    """Which partitions skip what.

    >>> given_up_in_words(PartitionsGivenUp(0.0, 3, 7, ["totals/1", "totals/2"], 1234))
    'totals/1, totals/2 skip epochs 3 to 7, in which the sources had 1,234 rows'
    """
    names = ", ".join(event.partitions[:MOST_NAMED])
    more = f" and {len(event.partitions) - MOST_NAMED:,} more" if len(event.partitions) > MOST_NAMED else ""
    verb = "skips" if len(event.partitions) == 1 else "skip"
    return f"{names}{more} {verb} epochs {event.first:,} to {event.last:,}, in which the sources had {event.rows:,} rows"
