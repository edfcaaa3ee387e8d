"""What a restarted driver may believe to have been shown."""

from pathlib import Path

import polars as pl

from resurge.connectors.contracts import StagedPart
from resurge.connectors.payloads import part_with_rows
from resurge.connectors.sinks import MemorySink
from resurge.model.names import KeyGroup, Partition
from resurge.protocols.cuts import Cuts
from resurge.runtime.driver.ledger import shown_epochs
from resurge.runtime.driver.outputs import Outputs, without_rows
from resurge.storage.durable import DurableStore
from resurge.storage.journal import CatchUpCommitted, CheckpointPublished, DriverStarted, EpochCommitted, Journal
from tests.unit.runtime.test_job_identity import topology

P, Q = Partition("p", KeyGroup(0)), Partition("q", KeyGroup(0))


def test_what_is_committed_counts_as_shown() -> None:
    """Also a driver's newest commit: the next driver shows its parts again before anything else."""
    records = [DriverStarted(1), EpochCommitted(1, {}, []), EpochCommitted(2, {}, [])]
    assert shown_epochs([P], records, Cuts()) == ({P: 2}, 2)


def test_a_partition_that_was_absent_has_not_shown_the_epoch() -> None:
    """Until it has caught up."""
    second = [DriverStarted(2), EpochCommitted(2, {}, [], ["p/0"]), EpochCommitted(3, {}, [], ["p/0"])]
    records = [DriverStarted(1), EpochCommitted(1, {}, []), *second]
    assert shown_epochs([P, Q], records, Cuts())[0] == {P: 1, Q: 3}
    assert shown_epochs([P, Q], [*records, CatchUpCommitted(3, {"p/0": 3}, [])], Cuts())[0] == {P: 3, Q: 3}


def committed(outputs: Outputs, journal: Journal, epoch: int) -> EpochCommitted:
    """A commit with one part that carries its rows."""
    query = next(iter(outputs.sinks))
    parts: list[StagedPart] = [part_with_rows(query, epoch, "attempt-0-1-00000", pl.DataFrame({"n": [epoch]}))]
    rows = outputs.kept(parts, journal)
    record = EpochCommitted(epoch, {}, without_rows(parts), [], rows)
    journal.append(record)
    return record


def test_the_newest_commits_rows_are_shown_by_the_next_driver_from_where_they_lie(tmp_path: Path) -> None:
    """Nothing is computed again; older commits were shown before the newest was logged; a checkpoint comes after showing."""
    sink, store = MemorySink(), DurableStore(str(tmp_path))
    outputs, journal = Outputs(topology(sink)), Journal(store)
    journal.take_over()
    records = [committed(outputs, journal, epoch) for epoch in (1, 2)]
    assert all(part.payload is None for record in records for part in record.parts)
    outputs.show_again(store, [*records, CheckpointPublished(2, "", 0, 1, 0)])
    assert sink.frames == []
    for _ in range(2):
        outputs.show_again(store, records)
    assert [frame.rows() for frame in sink.frames] == [[(2,)]]
