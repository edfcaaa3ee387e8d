"""The process that Spark forks Python workers from, with everything that tasks need imported before the fork.

A worker that is forked from it starts warm: after a cancelled job, whose workers Spark ends, the next tasks do not wait for
imports. What was imported is frozen, so that the collection which Spark's worker makes after each task is quick. Nothing is
computed here: a thread pool that was started before the fork would not survive it.
"""

import contextlib
import gc
import importlib

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import resurge.runtime.worker.tasks  # noqa: F401
from resurge.runtime.worker.executor import executor_id

# Where pandas is installed, Arrow imports it at its first conversion: half a second that a task should not wait for.
with contextlib.suppress(ImportError):
    importlib.import_module("pandas")

if __name__ == "__main__":
    executor_id()
    gc.collect()
    gc.freeze()
    manager()
