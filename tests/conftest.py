"""Options and settings that all tests share, and which of them stay together when they run side by side."""

import os
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

TESTS = Path(__file__).parent
# The longest first, so that short ones fill the end.
LONG = ("spark", "services", "browser")
LONGEST = "test_chaos"
# Tests of servers kill and restart them, and tests of the dashboard share a browser: these folders stay together.
SHARED = ("tests/services/", "tests/browser/")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much to try; the defaults suit every change, more suits a release."""
    parser.addoption("--crash-seeds", type=int, default=3, help="how many drivers are killed with kill -9")
    parser.addoption("--chaos-seeds", type=int, default=3, help="how many failure schedules run on a real cluster")
    parser.addoption("--schedules", type=int, default=1000, help="how many failure schedules are simulated")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long."""

    def rank(item: pytest.Item) -> tuple[int, bool]:
        folder = item.path.relative_to(TESTS).parts[0]
        return (LONG.index(folder) if folder in LONG else len(LONG), item.path.stem != LONGEST)

    items.sort(key=rank)


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Sends the tests of a file, which share what they start, to one process, and those of a shared folder too."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in SHARED if nodeid.startswith(folder)), nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Which tests run side by side, in the order of the collection."""
    config.option.loadscopereorder = False
    return Together(config, log)
