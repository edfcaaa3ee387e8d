"""The documents: links lead somewhere, the README's example runs, modules have a docstring and fit a reader's patience."""

import ast
import re
from pathlib import Path

import pytest

import resurge
from resurge.api.builder import TopologyBuilder
from resurge.runtime.driver.engine import Engine, run_until_done
from resurge.runtime.driver.options import RunOptions
from resurge.testing.inline_runner import InlineRunner

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MODULES = sorted((ROOT / "src" / "resurge").rglob("*.py"))
MOST_LINES = 400
MADE = ("benchmarks/results.md", "reference/api.md", "reference/commands.md", "reference/metrics.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def leads_somewhere(document: Path, target: str) -> bool:
    """Whether a link's target is a file, or a page that is made when the site is built (whose links that build checks)."""
    return (document.parent / target).exists() or (document.parent / target).resolve() in {ROOT / "docs" / page for page in MADE}


def relative(path: Path) -> str:
    """A path as a test's name shows it."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_relative_link_leads_to_a_file(document):
    """A reader never meets a dead end."""
    links = LINK.findall(CODE.sub("", document.read_text()))
    targets = [link.partition("#")[0] for link in links if "://" not in link]
    missing = [target for target in targets if target and not leads_somewhere(document, target)]
    assert not missing, f"{relative(document)} links to {', '.join(missing)}"


def test_example_of_the_readme_prints_what_the_example_file_prints(monkeypatch, capsys, tmp_path):
    """The first thing that anybody tries works, and is the same job as examples/trending_hashtags.py."""

    def run_here(topology: TopologyBuilder, *, interval: float, until_idle: bool, drain: bool) -> None:
        options = RunOptions(str(tmp_path / "job"), interval_s=interval, local_root=str(tmp_path))
        run_until_done(Engine(topology.build(), InlineRunner(2), options), until_idle=until_idle, drain=drain)

    monkeypatch.setattr(resurge, "run", run_here, raising=False)
    (example,) = PYTHON.findall((ROOT / "README.md").read_text())
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    # In which epoch a window is printed depends on how many rows an epoch takes, which depends on the machine's speed.
    printed, kept = capsys.readouterr().out, (ROOT / "examples" / "trending_hashtags.out").read_text()
    assert sorted(printed.splitlines()) == sorted(kept.splitlines())


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_module_says_what_it_is_and_is_not_too_long(module):
    """One line at the top tells a reader whether to go on; an empty package file needs none."""
    text = module.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{relative(module)} has no docstring"
    assert len(text.splitlines()) <= MOST_LINES, f"{relative(module)} has more than {MOST_LINES} lines: divide it"


def test_the_way_of_a_record_and_of_a_failure_leads_through_each_file_once() -> None:
    """Who reads both sections in order opens every file that they name once."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    ways = text[text.index("## The loop") : text.index("## State and checkpoints")]
    files = re.findall(r"\]\((src/[^)]+\.py)\)", ways)
    assert len(files) > 40
    assert [file for file in files if files.count(file) > 1] == []
