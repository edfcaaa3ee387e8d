"""Options and settings that all tests share."""

import os

import pytest

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much to try; the defaults suit every change, more suits a release."""
    parser.addoption("--crash-seeds", type=int, default=3, help="how many drivers are killed with kill -9")
    parser.addoption("--chaos-seeds", type=int, default=3, help="how many failure schedules run on a real cluster")
    parser.addoption("--schedules", type=int, default=1000, help="how many failure schedules are simulated")
