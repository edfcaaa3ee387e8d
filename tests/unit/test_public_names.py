"""The public API: few names, all there, and no Spark until something runs."""

import subprocess
import sys

import pytest

import resurge

NO_SPARK = """
import sys
import polars as pl
import resurge
from resurge import *
job = resurge.TopologyBuilder("trending")
tags = job.source("posts", resurge.posts(total=10), event_time="time").flat_map("tags", lambda t: t.select("time", tag="tags").explode("tag"))
tags.window("busy", "1s", key="tag", n=resurge.count()).query(priority=5)
job.build()
assert "pyspark" not in sys.modules, "describing a topology loaded pyspark"
"""
NOT_EVEN_POLARS = """
import sys
import resurge, resurge.cli.main
resurge.cli.main.register()
assert not {"pyspark", "polars", "matplotlib"} & set(sys.modules), "commands loaded what they may not need"
"""


@pytest.mark.parametrize("name", resurge.__all__)
def test_every_public_name_is_there(name):
    """`from resurge import *` and completion see the same names."""
    assert getattr(resurge, name) is not None
    assert name in dir(resurge)


def test_unknown_name_lists_those_there_are():
    """As every error: what was expected."""
    with pytest.raises(AttributeError, match=r"it has .*TopologyBuilder"):
        _ = resurge.Nothing


@pytest.mark.parametrize("code", [NO_SPARK, NOT_EVEN_POLARS])
def test_nothing_is_loaded_before_it_is_needed(code):
    """A topology is plain data, and the command line starts quickly."""
    subprocess.run([sys.executable, "-c", code], check=True)
