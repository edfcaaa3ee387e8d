"""State that goes to another node with a job: sent at the first level, taken at the level of its operator, else sent on."""

import time
from collections.abc import Sequence

from resurge.errors import StorageError
from resurge.operators.program import Program
from resurge.runtime.worker.messages import CohortWork, Sending, SlotReport
from resurge.runtime.worker.packets import Inbox, PacketWriter
from resurge.runtime.worker.partitions import Cohort, CohortStates
from resurge.runtime.worker.shipments import Wanted, install, opened, shipped
from resurge.storage.node_store import NodeStore

SHIPMENT = -2
"""The exchange that shipments are sent by."""


def send_state(
    program: Program, store: NodeStore, sends: Sequence[Sending], writers: Sequence[PacketWriter], report: SlotReport
) -> None:
    """Send what other slots begin with, and report how much it was."""
    began_s = time.monotonic()
    for number, sending in enumerate(sends):
        wanted = Wanted(sending.operator, sending.key_groups, sending.segment, sending.cursor, sending.since)
        content = shipped(program, store, wanted)
        writers[sending.target].add(SHIPMENT, 0, number, [], [], content)
        # Key groups that travel together share their bytes.
        for group in sending.key_groups:
            report.shipped_bytes[f"{sending.operator}/{group}"] = len(content) // len(sending.key_groups)
    report.shipping_s = time.monotonic() - began_s if sends else 0.0


def shipped_bytes(inbox: Inbox) -> int:
    """How much of what a task received is state."""
    return sum(len(frame.body) for frame in inbox.frames.get((SHIPMENT, 0), ()))


def load_cohorts(
    states: CohortStates, works: Sequence[CohortWork], inbox: Inbox, onward: PacketWriter, report: SlotReport
) -> list[Cohort]:
    """Key groups with their state before the job, wherever it comes from; what a later level takes is sent on to it."""
    arrived: dict[tuple[str, tuple[int, ...]], bytes] = {}
    for frame in inbox.frames.get((SHIPMENT, 0), ()):
        content = bytes(frame.body)
        shipment = opened(content)
        arrived[shipment.operator, tuple(shipment.key_groups)] = content
    found = []
    for work in works:
        began_s = time.monotonic()
        found.append(_installed(states, work, arrived) if work.arrives else states.load(work))
        # Key groups that were here before are loaded in every job.
        report.shipping_s += time.monotonic() - began_s if work.arrives else 0.0
    for number, content in enumerate(arrived.values()):
        onward.add(SHIPMENT, 0, number, [], [], content)
    return found


def _installed(states: CohortStates, work: CohortWork, arrived: dict[tuple[str, tuple[int, ...]], bytes]) -> Cohort:
    content = arrived.pop((work.operator, tuple(work.key_groups)), None)
    if content is None:
        raise StorageError(f"the state of key groups {work.key_groups} of {work.operator!r} did not arrive")
    return install(states, work, work.at, content)
