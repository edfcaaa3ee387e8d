"""Backup sites: the fewest (or cheapest) tasks that keep backups, so that every task recovers within its bound.

One file per algorithm, each `plan(problem) -> BackupPlan`; after BACKUPS (Minimum Backups for Stream Processing With
Recovery Latency Guarantees).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from resurge.planning.backup_sites import auto, dag, exact, exhaustive, line, share_based, tree
from resurge.planning.backup_sites.plan import BackupPlan
from resurge.planning.backup_sites.problem import BackupProblem

DEFAULT_ALGORITHM = "auto"

ALGORITHMS: Mapping[str, Callable[[BackupProblem], BackupPlan]] = MappingProxyType(
    {
        "auto": auto.plan,
        "line": line.plan,
        "tree": tree.plan,
        "dag": dag.plan,
        "share-based": share_based.plan,
        "exhaustive": exhaustive.plan,
        "exact": exact.plan,
    }
)

__all__ = ["ALGORITHMS", "DEFAULT_ALGORITHM", "BackupPlan", "BackupProblem"]
