"""Options and settings that all tests share, and which of them stay together when they run side by side."""

import os
from collections.abc import Iterator
from itertools import zip_longest

import pytest
from xdist.scheduler import LoadScopeScheduling

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

# The longest begin at once.
LONGEST = ("tests/spark/test_chaos.py", "tests/spark/three_nodes/", "tests/services/")
# Tests that mostly wait for processes, and tests that keep a core busy, take turns; what is short fills the end.
WAITING = ("tests/spark/", "tests/browser/")
BUSY = ("tests/simulation/", "tests/properties/")
# Tests of servers kill and restart them; others share a cluster or a browser: these folders stay together.
SHARED = ("tests/services/", "tests/browser/", "tests/spark/three_nodes/")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much to try; the defaults suit every change, more suits a release."""
    parser.addoption("--crash-seeds", type=int, default=3, help="how many drivers are killed with kill -9")
    parser.addoption("--chaos-seeds", type=int, default=3, help="how many failure schedules run on a real cluster")
    parser.addoption("--schedules", type=int, default=1000, help="how many failure schedules are simulated")


@pytest.fixture(scope="session", autouse=True)
def quick_disk() -> Iterator[None]:
    """Processes crash in tests and machines do not, so that nothing need wait for the disk."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.fsync", lambda descriptor: None)
        yield


def scope_of(nodeid: str) -> str:
    """What stays together: the tests of a file, which share what they start, and those of a shared folder."""
    return next((folder for folder in SHARED if nodeid.startswith(folder)), nodeid.partition("::")[0])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long."""
    scopes = list(dict.fromkeys(scope_of(item.nodeid) for item in items))
    longest = sorted((scope for scope in scopes if scope in LONGEST), key=LONGEST.index)
    others = [scope for scope in scopes if scope not in LONGEST]
    waiting, busy = ([scope for scope in others if scope.startswith(folders)] for folders in (WAITING, BUSY))
    turns = [scope for pair in zip_longest(waiting, busy) for scope in pair if scope is not None]
    order = {scope: place for place, scope in enumerate([*longest, *turns])}
    items.sort(key=lambda item: order.get(scope_of(item.nodeid), len(order)))


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Sends what stays together to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Which tests run side by side, in the order of the collection."""
    config.option.loadscopereorder = False
    return Together(config, log)
