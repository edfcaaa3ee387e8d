"""The wheel: everything that a user needs is in it, and nothing else."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import resurge

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel as pip builds it, from a copy, so that nothing is left in the project."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "src", "pyproject.toml", "README.md", "LICENSE"], cwd=ROOT, capture_output=True, check=True
    )
    for name in tracked.stdout.decode().split("\0"):
        if name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder), str(source)], check=True)
    (built,) = folder.glob("resurge-*.whl")
    return built


def names(wheel: Path) -> set[str]:
    """The files of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    """Modules, the page's assets, the report's template, the mark of a typed package; and no tests."""
    package = ROOT / "src"
    wanted = {
        str(path.relative_to(package))
        for path in (package / "resurge").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name for name in names(wheel) if name.startswith("resurge/")}
    assert wanted == found
    assert {"resurge/py.typed", "resurge/dashboard/assets/index.html", "resurge/dashboard/assets/uPlot.LICENSE.txt"} <= found
    assert not any(name.startswith(("tests/", "examples/")) for name in names(wheel))


def test_metadata_says_what_it_is(wheel):
    """Version, licence, classifiers, and an extra for each optional part."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == resurge.__version__
    assert "Apache" in str(metadata.get_all("License") or metadata.get_all("License-Expression"))
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert set(metadata.get_all("Provides-Extra")) >= {"dashboard", "metrics", "traces", "kafka", "postgres", "delta", "iceberg"}
    assert any(name.endswith("LICENSE") for name in names(wheel))


def test_installed_wheel_runs_outside_the_project(wheel, tmp_path):
    """In a fresh environment, with the dependencies of this one: the command is there and finds its own package."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "fresh")], check=True)
    binaries = tmp_path / "fresh" / "bin"
    subprocess.run([binaries / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", str(wheel)], check=True)
    (dependencies,) = [path for path in sys.path if path.endswith("site-packages")]
    (packages,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    code = "import resurge, resurge.dashboard.app as app; print(resurge.__file__, app.ASSETS.joinpath('main.js').is_file())"
    told = subprocess.run(
        [binaries / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    assert told == [str(packages / "resurge" / "__init__.py"), "True"]
    version = subprocess.run([binaries / "resurge", "--version"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert version.startswith("resurge ")
