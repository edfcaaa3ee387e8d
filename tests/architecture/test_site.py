"""The documentation site: it is built strictly, snippets run, commands and options in it exist, names are all there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import resurge
from resurge.api.builder import TopologyBuilder
from resurge.cli import main
from tests.support.inline_sessions import run_inline

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "decisions" not in path.parts)
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^ *```(?:bash|sh)?\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
# What a guide's snippets take as given.
GIVEN = """
from resurge import *
from resurge import TopologyBuilder, count, posts
_job = TopologyBuilder("given")
tags = _job.source("posts", posts(total=100), event_time="time").flat_map("tags", pl.col("tags").alias("tag"), "time")
"""


def relative(path: Path) -> str:
    """A page as a test's name shows it."""
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built strictly: a broken link, a missing anchor or a page that is in no menu ends the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return folder


def test_site_is_whole(site):
    """Every page of the menu is there, and nothing is fetched from outside."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        text = page.read_text()
        found = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?://[^"]+)"', text)
        assert not [address for address in found if "127.0.0.1" not in address], f"{page.name} loads {found}"


def test_every_public_name_is_in_the_reference(site):
    """What can be imported is documented."""
    text = (site / "reference" / "api.html").read_text()
    missing = [
        name for name in resurge.__all__ if name not in ("errors", "__version__") and not re.search(rf'id="[\w.]*\.{name}"', text)
    ]
    assert missing == []
    assert 'id="resurge.errors.StorageError"' in text


def test_every_command_and_option_is_in_the_reference(site):
    """Made from the commands themselves."""
    text = (site / "reference" / "commands.html").read_text()
    for words, known in commands().items():
        assert f'id="{"-".join(words)}"' in text, words
        for option in known - {"--help"}:
            assert option in text, f"{' '.join(words)} {option}"


def test_results_page_has_every_result_file(site):
    """With the command that repeats it."""
    text = (site / "benchmarks" / "results.html").read_text()
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        assert path.stem.replace("-", " ").capitalize() in text


def test_results_of_any_depth_become_tables(monkeypatch):
    """Lists of figures, of rows and of lists, at any place."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    from docs_pages import result_tables

    rows = [{"queries": 1, "samples_s": [1, 2.5]}, {"queries": 2, "samples_s": []}]
    lines = list(result_tables({"first": {"took_s": 3}, "second": {"rows": rows, "pairs": [[1, 2], [3, 4]]}}))
    assert "### rows" in lines
    assert "| 1 | 1, 2.5 |" in lines
    assert "| 3, 4 |" in lines


@pytest.mark.parametrize("page", [page for page in PAGES if SNIPPET.search(page.read_text())], ids=relative)
def test_python_snippets_run(page, tmp_path, monkeypatch):
    """In the order of the page, in one namespace, on the engine without Spark."""
    snippets = SNIPPET.findall(page.read_text())
    run_without_spark(monkeypatch)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "snippet"}
    exec("import polars as pl\n" + GIVEN, namespace)
    for snippet in snippets:
        exec(compile(snippet, relative(page), "exec"), namespace)
    for value in list(namespace.values()):
        if isinstance(value, TopologyBuilder) and value._queries:
            value.build()


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=relative)
def test_commands_in_pages_exist_with_their_options(page):
    """A reader who copies a line is not told that there is no such option."""
    known = commands()
    for block in SHELL.findall(page.read_text()):
        for line in re.findall(r"^\s*(?:\w+=\S+ )*(resurge [^\n#]*)", block.replace("\\\n", " "), re.MULTILINE):
            words = shlex.split(re.split(r" {3,}", line)[0], comments=True)
            command = max((name for name in known if tuple(words[: len(name)]) == name), key=len)
            assert len(command) > 1, f"{relative(page)}: {line}"
            given = [word.partition("=")[0] for word in words if word.startswith("--")]
            assert set(given) <= known[command], f"{relative(page)}: {line}"


def commands() -> dict[tuple[str, ...], set[str]]:
    """Every command by its words, with its options."""
    if not main.app.registered_commands:
        main.register()

    def walk(command, words: tuple[str, ...]):
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        yield words, {option for parameter in shown for option in parameter.opts if option.startswith("--")}
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*words, name))

    return {words: {*options, "--help"} for words, options in walk(typer.main.get_command(main.app), ("resurge",))}


def run_without_spark(monkeypatch) -> None:
    """`run` and `start` use the engine in this process."""
    run_inline(monkeypatch)
