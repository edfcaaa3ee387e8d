"""The checkpoint-placement study on paper: a table, a figure in three panels, and what agrees with the paper."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resurge.studies.checkpoint_placement import COMPARED, KEY_GROUPS, Result, means
from resurge.studies.swinging_load import Swung

CSV_NAME, PLOT_NAME, SUMMARY_NAME = "checkpoint_placement.csv", "checkpoint_placement.png", "summary.md"
PANELS = ("moves that a copy assisted (figure 7)", "usable copies (figure 8)", "seconds of moves saved (figure 9)")
SETTLED = (
    "The paper does not say how large key groups are, how they are dealt out, or how far load grows. Here key groups have the flights of "
    "their airplanes, are dealt out node by node, and the load doubles until the mean node is as full as it may be."
)
Means = Mapping[tuple[int, str], tuple[float, float, float]]


@dataclass(frozen=True)
class Studied:
    """Simulated runs of the job that grows and of the one that swings, and real runs of the latter, if there are any."""

    results: Sequence[Result]
    swung: Mapping[str, Result]
    real: Sequence[Swung] = ()


def write_study(studied: Studied, out: Path, heading: str) -> None:
    """Write the table, the figure and the summary; the last two say nothing of the simulated runs that is not in the first."""
    results = studied.results
    with (out / CSV_NAME).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("key_groups", "algorithm", "seed", "moves", "assisted", "usable_share", "latency_s", "saved_s"))
        for each in results:
            figures = (f"{each.usable_share:.6f}", f"{each.latency_s:.3f}", f"{each.saved_s:.3f}")
            writer.writerow((each.key_groups, each.algorithm, each.seed, each.moves, each.assisted, *figures))
    found = means(results)
    _draw(found, out / PLOT_NAME)
    (out / SUMMARY_NAME).write_text(summary(found, studied.swung, heading, studied.real), encoding="utf-8")


def results_of(studied: Studied) -> dict[str, Any]:
    """What a result file keeps."""
    found = means(studied.results)
    return {
        "simulated": [
            {
                "key_groups": groups,
                "algorithm": name,
                "assisted_share": round(each[0], 4),
                "usable_share": round(each[1], 4),
                "saved_s": round(each[2], 3),
            }
            for (groups, name), each in found.items()
        ],
        "swinging_simulated": {name: {"moves": each.moves, "assisted": each.assisted} for name, each in studied.swung.items()},
        "swinging_real": [
            {
                "algorithm": each.algorithm,
                "moves": each.moves,
                "assisted": each.assisted,
                "moved": [m._asdict() for m in each.moved],
            }
            for each in studied.real
        ],
        "reached": {text: agrees for agrees, text in findings(found, studied.swung, studied.real)},
    }


def _draw(found: Means, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    for panel, axes in enumerate(figure.subplots(1, 3)):
        for algorithm in COMPARED:
            axes.plot(KEY_GROUPS, [found[groups, algorithm][panel] for groups in KEY_GROUPS], marker="o", label=algorithm)
        axes.set_title(PANELS[panel])
        axes.set_xlabel("key groups per operator")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def summary(found: Means, swung: Mapping[str, Result], heading: str, real: Sequence[Swung] = ()) -> str:
    """The means as a table, and the paper's findings, each with whether ours agree."""
    lines = ["# Checkpoint placement: ELASTIC, figures 7 to 9, simulated", "", heading, "", f"![the figures]({PLOT_NAME})", ""]
    lines += ["| key groups | algorithm | assisted moves | usable copies | seconds saved |", "|---|---|---|---|---|"]
    for groups in KEY_GROUPS:
        for algorithm in COMPARED:
            assisted, usable, saved_s = found[groups, algorithm]
            lines.append(f"| {groups} | {algorithm} | {assisted:.1%} | {usable:.1%} | {saved_s:.1f} |")
    lines += ["", "Load that swings from one operator to the other:", ""]
    lines += ["| algorithm | moves | assisted |", "|---|---|---|"]
    lines += [f"| {name} | {each.moves} | {each.assisted_share:.0%} |" for name, each in swung.items()]
    if real:
        lines += ["", "The same on a real cluster:", "", "| algorithm | moves | assisted | longest pause |", "|---|---|---|---|"]
        lines += [
            f"| {each.algorithm} | {each.moves} | {each.assisted_share:.0%} | {each.longest_pause_s * 1000:.0f} ms |"
            for each in real
        ]
    lines += ["", "## Against the paper", ""]
    lines += [SETTLED, ""]
    lines += [f"- **{'Agrees' if agrees else 'Differs'}**: {text}" for agrees, text in findings(found, swung, real)]
    return "\n".join(lines) + "\n"


def findings(found: Means, swung: Mapping[str, Result], real: Sequence[Swung] = ()) -> list[tuple[bool, str]]:
    """The paper's statements about its figures, checked one by one."""
    claims = []
    for groups in KEY_GROUPS:
        assisted, usable, saved = (
            found[groups, "correlated"][panel] / max(found[groups, "even"][panel], 1e-9) for panel in range(3)
        )
        text = f"with {groups} key groups, correlated assists twice as many moves as even (here {assisted:.1f} times"
        claims.append(
            (assisted >= 2, f"{text}; {usable:.1f} times as many usable copies, {saved:.1f} times as much time saved).")
        )
    shares = {name: each.assisted_share for name, each in swung.items()}
    text = f"with load that swings, correlated assists every move (here {shares['correlated']:.0%}), even half (here {shares['even']:.0%})."
    claims.append((shares["correlated"] == 1.0 and shares["correlated"] >= 2 * shares["even"], text))
    run = {each.algorithm: each for each in real}
    if "correlated" in run and "even" in run:
        mine, other = run["correlated"], run["even"]
        text = (
            f"on a real cluster, correlated assists every move of {mine.moves} (here {mine.assisted_share:.0%}) and twice as many"
        )
        is_twice = mine.assisted_share >= 2 * other.assisted_share
        claims.append(
            (mine.assisted_share == 1.0 and is_twice, f"{text} as even (here {other.assisted_share:.0%} of {other.moves}).")
        )
    return claims
