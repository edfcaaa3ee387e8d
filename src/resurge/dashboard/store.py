"""What a job's durable store says of itself: journal and checkpoints, as plain values for the page."""

import time
from datetime import datetime
from typing import Any

from resurge.errors import ResurgeError
from resurge.storage import paths
from resurge.storage.durable import DurableStore
from resurge.storage.stored_job import open_job


def store_view(url: str) -> dict[str, Any]:
    """Journal and checkpoints at a URL, or what is wrong with them."""
    began_s = time.monotonic()
    try:
        job = open_job(url)
        manifest, problems = job.newest_checkpoint()
    except (ResurgeError, OSError) as error:
        return {"url": url, "problem": str(error)}
    records: dict[str, int] = {}
    for record in job.records:
        records[type(record).__name__] = records.get(type(record).__name__, 0) + 1
    written = {known.epoch: job.written_at(known.manifest) for known in job.checkpoints}
    return {
        "url": url,
        "problem": "; ".join(problems),
        "topology": job.identity.topology,
        "generation": job.generation,
        "planned_epoch": job.planned_epoch,
        "committed_epoch": job.committed_epoch,
        "journal_records": len(job.records),
        "journal_kinds": records,
        "checkpoints": [
            {"epoch": known.epoch, "manifest": known.manifest, "written_s": _seconds(written[known.epoch])}
            for known in job.checkpoints
        ],
        "partitions": sum(len(cohort.key_groups) for cohort in manifest.cohorts) if manifest is not None else 0,
        "data_bytes": data_bytes(job.store),
        "read_s": time.monotonic() - began_s,
    }


def data_bytes(store: DurableStore) -> int | None:
    """The size of all checkpoint data, where the store can tell."""
    try:
        found = store.filesystem.find(store.path(paths.CHECKPOINT_DATA), detail=True)
    except (OSError, NotImplementedError):
        return None
    return sum(int(known.get("size") or 0) for known in found.values())


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment is not None else None
