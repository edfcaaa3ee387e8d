"""Options and settings that all tests share, and which of them stay together when they run side by side."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

TESTS = Path(__file__).parent
# The longest first, so that short ones fill the end. A file of Spark tests shares a session or a cluster; tests of servers
# kill and restart them, and tests of the dashboard share a browser.
TOGETHER = {"spark": "file", "services": "folder", "browser": "folder"}
LONGEST = "test_chaos"


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much to try; the defaults suit every change, more suits a release."""
    parser.addoption("--crash-seeds", type=int, default=3, help="how many drivers are killed with kill -9")
    parser.addoption("--chaos-seeds", type=int, default=3, help="how many failure schedules run on a real cluster")
    parser.addoption("--schedules", type=int, default=1000, help="how many failure schedules are simulated")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say to pytest-xdist (--dist loadgroup) what is to run in one process, and begin with what takes long."""
    ranks = list(TOGETHER)

    def rank(item: pytest.Item) -> tuple[int, bool]:
        folder = item.path.relative_to(TESTS).parts[0]
        return (ranks.index(folder) if folder in ranks else len(ranks), item.path.stem != LONGEST)

    items.sort(key=rank)
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.stem if TOGETHER[folder] == "file" else folder))
