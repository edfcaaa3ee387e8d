"""Figures that documents quote, and pictures, are those of the result files; every result file says where it comes from."""

import importlib.util
import json
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
MEASURED = re.compile(r"\d[\d,.]* ?(%|ms\b|s\b|k/s\b|MB\b|MiB\b|times\b|rows per second|posts per second)")
MARKED = re.compile(r"<!--(=|table:).*?<!--/(table)?-->", re.DOTALL)


def script(name: str) -> ModuleType:
    """A module of the scripts folder."""
    if str(ROOT / "scripts") not in sys.path:
        sys.path.insert(0, str(ROOT / "scripts"))
    return importlib.import_module(name)


quotes, pictures, measuring = script("quote_results"), script("draw_pictures"), script("measure")


def relative(path: Path) -> str:
    """A path as a test's name shows it."""
    return str(path.relative_to(ROOT))


def git(*arguments: str, told: str = "") -> subprocess.CompletedProcess[str]:
    """What a command of git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, input=told, capture_output=True, text=True, check=False)


def source_trees() -> set[str]:
    """The folder of sources of every commit of this branch, by its id."""
    commits = git("rev-list", "HEAD").stdout.split()
    found = git("cat-file", "--batch-check=%(objectname)", told="".join(f"{commit}:src\n" for commit in commits)).stdout
    return {line[:12] for line in found.splitlines() if " " not in line}


def is_in_history(result: dict[str, Any]) -> bool | None:
    """Whether these sources are those of a commit of this branch; None where there is no whole history to look in."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return None
    if git("merge-base", "--is-ancestor", result["commit"], "HEAD").returncode == 0:
        return True
    # A rebase gives commits other names; what was measured is still there.
    return result.get("source_tree") in source_trees()


@pytest.mark.parametrize("page", quotes.documents(), ids=relative)
def test_every_quoted_figure_is_the_one_in_its_result_file(page):
    """`python scripts/quote_results.py` changes nothing."""
    assert quotes.quoted(page.read_text()) == page.read_text()


def test_a_figure_that_differs_is_seen():
    """The check can fail."""
    text = "<!--=growth:command|-->typed in by hand<!--/-->"
    assert quotes.quoted(text) != text


@pytest.mark.parametrize("path", RESULTS, ids=relative)
def test_every_result_file_says_where_it_comes_from(path):
    """Command, machine, versions, date, and a commit of this history without uncommitted changes; no notes by hand."""
    result = json.loads(path.read_text())
    assert set(quotes.PROVENANCE) <= set(result) and "note" not in result
    assert re.fullmatch(r"[0-9a-f]{12}", result["commit"]), f"{result['commit']}: expected a commit without changes"
    assert is_in_history(result) in {True, None}, f"neither {result['commit']} nor its sources are in the history"
    assert datetime.fromisoformat(result["date"]).tzinfo is not None
    assert " cores, " in result["machine"] and set(result["versions"]) >= {"resurge", "pyspark", "polars"}
    assert path.name in result["command"] or "--out /tmp/" in result["command"]


def test_a_result_of_other_sources_is_seen():
    """The check can fail, and takes a commit under another name by its sources."""
    if is_in_history({"commit": "0" * 12}) is None:
        pytest.skip("the history is not whole")
    sources = git("rev-parse", "--short=12", "HEAD:src").stdout.strip()
    assert is_in_history({"commit": "0" * 12, "source_tree": sources})
    assert not is_in_history({"commit": "0" * 12, "source_tree": "0" * 12})


def test_every_result_file_can_be_measured_again_and_is_quoted():
    """Each has its line in scripts/measure.py, and a table."""
    names = {path.stem for path in RESULTS}
    assert names <= {measurement.name for measurement in measuring.MEASUREMENTS}
    assert names <= {name for name, _ in quotes.TABLES.values()}


@pytest.mark.parametrize("picture", pictures.DRAWN)
def test_every_picture_is_drawn_from_its_result_file(picture):
    """It carries the fingerprint of the file as it is."""
    name, _ = pictures.DRAWN[picture]
    if not quotes.is_kept(name):
        assert not (pictures.PICTURES / f"{picture}.png").exists()
        return
    with Image.open(pictures.PICTURES / f"{picture}.png") as found:
        assert found.text["Description"] == quotes.fingerprint(name)


def test_no_figure_of_the_benchmarks_is_typed_in():
    """What was measured stands between markers; a paragraph that begins with a command tells its settings."""
    text = MARKED.sub("", (ROOT / "benchmarks" / "README.md").read_text())
    typed = [line for line in text.split("\n\n") if not line.startswith("`") and MEASURED.search(re.sub(r"`[^`]*`", "", line))]
    assert not typed


@pytest.mark.parametrize("measurement", measuring.MEASUREMENTS, ids=lambda measurement: measurement.name)
def test_every_measurement_is_a_command_that_there_is(measurement, monkeypatch):
    """Its options are known, so that a long series does not stop in the middle."""
    from typer.main import get_command

    from resurge.cli import main

    words = measurement.words[1:]
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None
        return
    if not main.app.registered_commands:
        main.register()
    command = get_command(main.app)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    command.make_context(command.name, words, resilient_parsing=False)


def test_a_result_of_other_code_or_of_another_command_is_measured_again(tmp_path, monkeypatch):
    """And one of the same code is not: a series can be stopped and started again."""
    head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if head.returncode:
        pytest.skip("not a checkout of git")
    first = subprocess.run(["git", "rev-list", "--max-parents=0", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    monkeypatch.setattr(quotes, "RESULTS", tmp_path)
    measurement = measuring.Measurement("growth", "bench growth", 1)

    def is_current(commit: str, command: str = "resurge bench growth --out x") -> bool:
        known = dict.fromkeys(quotes.PROVENANCE, "") | {"commit": commit, "command": command}
        (tmp_path / "growth.json").write_text(json.dumps(known))
        return bool(measurement.is_current())

    assert not measurement.is_current(), "nothing was measured"
    assert is_current(head.stdout.strip())
    assert not is_current(head.stdout.strip(), "resurge bench state")
    assert not is_current(head.stdout.strip() + " with uncommitted changes")
    if not first.stdout.startswith(head.stdout.strip()):
        assert not is_current(first.stdout.split()[0])
