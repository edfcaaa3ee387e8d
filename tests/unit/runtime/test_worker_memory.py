"""What a worker process remembers between tasks."""

import gc
import weakref
from pathlib import Path

from resurge.runtime.worker.partitions import MOST_JOBS, node_store


def test_a_node_has_one_store_in_a_process_so_that_its_mappings_are_shared(tmp_path: Path) -> None:
    """Also when jobs take turns."""
    first, second = (node_store(str(tmp_path / job), "n1") for job in ("one", "two"))
    assert node_store(str(tmp_path / "one"), "n1") is first
    assert node_store(str(tmp_path / "two"), "n1") is second
    assert first is not second


def test_files_of_older_jobs_are_let_go(tmp_path: Path) -> None:
    """A deleted file takes room for as long as it is mapped, so a session of many jobs would fill the node's memory."""
    stores = []
    for job in range(MOST_JOBS + 1):
        store = node_store(str(tmp_path / f"job-{job}"), "n1")
        store.write("segment", b"state")
        view = weakref.ref(store.view("segment"))
        stores.append((weakref.ref(store), view))
        del store
    gc.collect()
    assert [store() is None and view() is None for store, view in stores] == [True, *[False] * MOST_JOBS]
