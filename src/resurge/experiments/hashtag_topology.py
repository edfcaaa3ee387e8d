"""The 15-query topology of INCREMENTAL as names: four windows over hashtags, eleven operators that maintain their counts."""

from collections.abc import Mapping

WINDOWS = ("O1", "O2", "O3", "O4")
MAINTAINED: Mapping[str, tuple[str, ...]] = {
    "O5": ("O1",),
    "O6": ("O2",),
    "O7": ("O3",),
    "O8": ("O4",),
    "O9": ("O1", "O2"),
    "O10": ("O1", "O3"),
    "O11": ("O1", "O4"),
    "O12": ("O2", "O3"),
    "O13": ("O2", "O4"),
    "O14": ("O3", "O4"),
    "O15": ("O1",),
}
PRIORITIES: Mapping[str, int] = {
    "O1": 4, "O2": 3, "O3": 2, "O4": 2, "O5": 10, "O6": 5, "O7": 3, "O8": 1,
    "O9": 8, "O10": 7, "O11": 2, "O12": 4, "O13": 3, "O14": 1, "O15": 6,
}  # fmt: skip
