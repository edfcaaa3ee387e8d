"""Hooks of the documentation site: pages made from the project itself, and links that hold both here and in the repository."""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
# Documents outside the docs folder, and where they are in the site.
BORROWED = {
    "ARCHITECTURE.md": "architecture.md",
    "GLOSSARY.md": "glossary.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks/index.md",
    "README.md": "index.md",
}
# How the public names are grouped; what is not named here is found under the last heading.
GROUPS = {
    "Describing a topology": ("TopologyBuilder", "Topology", "Determinism", "count", "sum_", "mean", "min_", "max_"),
    "State of your own operators": ("value_of", "list_of", "map_of"),
    "Running": ("run", "start", "RunningJob", "JobStatus"),
    "Sources and sinks": (),
}
# What a result file has besides the figures of its tables.
NO_FIGURES = {"command", "machine", "commit", "date", "note", "versions", "source_tree", "samples", "available"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add borrowed and generated pages."""
    for source, page in BORROWED.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    generated = {
        "decisions/index.md": decisions_page(),
        "benchmarks/results.md": results_page(),
        "reference/api.md": api_page(),
        "reference/commands.md": commands_page(),
        "reference/metrics.md": metrics_page(),
    }
    for page, content in generated.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links of the repository become links of the site; links to files that are not in the site become their names."""
    here = page.file.src_uri
    origin = next((source for source, target in BORROWED.items() if target == here and here != "index.md"), f"docs/{here}")
    return "".join(
        piece if piece.startswith("`") else LINK.sub(lambda found: _link(found, origin, here, files), piece)
        for piece in FENCE.split(markdown)
    )


def _link(found: re.Match[str], origin: str, here: str, files: Any) -> str:
    image, text, target = found.groups()
    path, hash_, anchor = target.partition("#")
    if "://" in target or not path or target.startswith("mailto:"):
        return found[0]
    repository_path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    site_path = BORROWED.get(repository_path) or repository_path.removeprefix("docs/")
    if repository_path == "docs/decisions":
        site_path = "decisions/index.md"
    if files.get_file_from_path(site_path) is not None:
        relative = posixpath.relpath(site_path, posixpath.dirname(here) or ".")
        return f"{image}[{text}]({relative}{hash_}{anchor})"
    if not (ROOT / repository_path).exists():
        # Left as it is: the strict build names it.
        return found[0]
    return text if text.startswith("`") else f"`{text}`" if re.fullmatch(r"[\w./@-]+", text) else text


def decisions_page() -> str:
    """One line per decision."""
    lines = ["# Decisions", "", "Why it is built this way, one page each: context, decision, what was given up.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text().splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def results_page() -> str:
    """Every kept result with its command, machine and commit, as tables."""
    lines = [
        "# Benchmark results",
        "",
        "This page is made from the result files of the project. Each names the command that repeats it, the machine and the commit. "
        "[How they are measured](index.md) says what the figures mean.",
        "",
    ]
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        content = json.loads(path.read_text())
        lines += [f"## {path.stem.replace('-', ' ').capitalize()}", ""]
        for fact in ("command", "machine", "commit", "date", "note"):
            if content.get(fact):
                words = (
                    content[fact] if isinstance(content[fact], str) else ", ".join(f"{k}: {v}" for k, v in content[fact].items())
                )
                lines.append(f"- {fact}: " + (f"`{words}`" if fact in ("command", "commit") else str(words)))
        figures = {name: value for name, value in content.items() if name not in NO_FIGURES}
        lines += ["", *result_tables(content.get("results", figures)), ""]
    return "\n".join(lines)


def result_tables(results: Any, title: str = "") -> Iterator[str]:
    """Results as Markdown tables: named rows of figures; anything deeper gets a heading of its own."""
    rows = {str(index): row for index, row in enumerate(results)} if isinstance(results, list) else results
    if not isinstance(rows, dict):
        yield f"{title} {_figure(rows)}"
        return
    flat = {name: _flat(row) if isinstance(row, dict) else {"value": row} for name, row in rows.items()}
    if any(_is_nested(value) for row in flat.values() for value in row.values()):
        figures = {name.replace("_", " "): value for name, value in rows.items() if not _is_nested(value)}
        if figures:
            yield from result_tables(figures)
            yield ""
        for name, row in rows.items():
            if _is_nested(row):
                yield f"### {title} {name}".replace("  ", " ").replace("_", " ")
                yield ""
                yield from result_tables(row)
                yield ""
        return
    columns = list(dict.fromkeys(column for row in flat.values() for column in row))
    named = not isinstance(results, list)
    yield "| " + " | ".join([*([""] if named else []), *(column.replace("_", " ") for column in columns)]) + " |"
    yield "|" + "---|" * (len(columns) + named)
    for name, row in flat.items():
        yield "| " + " | ".join([*([name] if named else []), *(_figure(row.get(column)) for column in columns)]) + " |"


def _is_nested(value: Any) -> bool:
    """Whether something is more than a figure or a list of figures."""
    if isinstance(value, list):
        return any(isinstance(inner, dict | list) for inner in value)
    return isinstance(value, dict)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """One level of nesting becomes part of the column's name, where it is made of figures only."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and all(not isinstance(inner, dict | list) for inner in value.values()) and len(value) <= 4:
            found |= {f"{name} {inner}": figure for inner, figure in value.items()}
        else:
            found[name] = value
    return found


def _figure(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_figure, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return "–" if value is None else str(value)


def api_page() -> str:
    """The public names, from docstrings, in groups."""
    import resurge

    homes = resurge._HOMES
    named = {name for names in GROUPS.values() for name in names}
    lines = [
        "# Python API",
        "",
        "These names are public: `from resurge import ...`. What is not here may change without notice "
        "([compatibility](compatibility.md)). Streams are what a `TopologyBuilder` returns.",
        "",
    ]
    for heading, names in GROUPS.items():
        chosen = [name for name in names if name in homes] or sorted(name for name in homes if name not in named)
        lines += [f"## {heading}", ""]
        for name in chosen:
            lines += [f"::: {homes[name]}.{name}" if not _is_reexport(homes[name]) else f"::: {_origin(name)}", ""]
        if heading == "Describing a topology":
            lines += ["::: resurge.api.builder.Stream", ""]
    lines += ["## Errors", "", "::: resurge.errors", "    options:", "      show_root_heading: false", ""]
    return "\n".join(lines)


def _is_reexport(module: str) -> bool:
    return module == "resurge.connectors.sinks"


def _origin(name: str) -> str:
    import resurge

    found = getattr(resurge, name)
    return f"{found.__module__}.{found.__qualname__}"


def commands_page() -> str:
    """Every command's help."""
    import typer

    from resurge.cli import main

    if not main.app.registered_commands:
        main.register()
    lines = ["# Command line", "", "What `--help` says of every command.", ""]
    for name, command in _commands(typer.main.get_command(main.app), "resurge"):
        lines += _command_lines(name, command)
    return "\n".join(lines)


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for child, found in sorted(getattr(command, "commands", {}).items()):
        if not found.hidden:
            yield from _commands(found, f"{name} {child}")


def _command_lines(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            yield "```text"
            yield paragraph.lstrip().lstrip("\b").strip("\n")
            yield "```"
        else:
            yield re.sub(r"([<>|*])", r"\\\1", paragraph)
        yield ""
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False) and parameter.name != "help"]
    if shown:
        yield "| option | what it does | default |"
        yield "|---|---|---|"
        for parameter in shown:
            names = (
                ", ".join(f"`{option}`" for option in parameter.opts)
                if parameter.param_type_name == "option"
                else f"`{parameter.metavar or parameter.name.upper()}`"
            )
            default = parameter.default if not callable(parameter.default) else None
            words = "" if default in (None, False, "") or repr(default).startswith("Sentinel") else f"`{default}`"
            yield f"| {names} | {(parameter.help or '').replace('|', '/')} | {words} |"
        yield ""


def metrics_page() -> str:
    """Every Prometheus metric, as the endpoint tells it."""
    from resurge.telemetry.prometheus import PrometheusMetrics

    lines = [
        "# Metrics",
        "",
        "`resurge run --metrics PORT` serves these at `http://127.0.0.1:PORT/metrics`. Counters end in `_total`, and start from "
        "zero with the driver. The dashboard file for Grafana is `deploy/grafana/resurge.json`.",
        "",
        "| metric | kind | labels | what it is |",
        "|---|---|---|---|",
    ]
    for collector in PrometheusMetrics().registry._collector_to_names:
        (family,) = collector.describe()
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = ", ".join(f"`{label}`" for label in getattr(collector, "_labelnames", ()))
        lines.append(f"| `{family.name}{suffix}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(lines) + "\n"
