"""A picture of a soak: what every process and folder held over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from resurge.experiments.soak_judgement import WARM_UP_S

PANELS = (
    ("memory_bytes", "memory of its own of the largest process that lives to the end, MiB", 2**20),
    ("descriptors", "open descriptors", 1),
    ("threads", "threads", 1),
    ("processes", "processes", 1),
    ("files", "files", 1),
    ("bytes", "bytes in files, MiB", 2**20),
)


def draw(samples: Sequence[Mapping[str, float]], path: Path, description: str = "", warm_up_s: float = WARM_UP_S) -> Path:
    """One panel per figure, one line per kind of process or folder."""
    figure = Figure(figsize=(9, 14), layout="constrained")
    FigureCanvasAgg(figure)
    names = sorted({name for sample in samples for name in sample if name != "at_s"})
    for axes, (figure_name, title, unit) in zip(figure.subplots(len(PANELS), 1, sharex=True), PANELS, strict=True):
        for name in names:
            kind, _, mine = name.rpartition("/")
            if mine == figure_name:
                points = [(sample["at_s"] / 60, sample[name] / unit) for sample in samples if name in sample]
                axes.plot(*zip(*points, strict=True), label=kind, linewidth=1)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        axes.axvline(warm_up_s / 60, color="#999999", linewidth=0.8, linestyle="--")
    axes.set_xlabel("minutes (flat from the dashed line on)")
    figure.savefig(path, dpi=110, metadata={"Description": description})
    return path
