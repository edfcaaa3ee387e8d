"""What readers see in a simulated run: each query partition publishes each epoch once, in order."""

from collections.abc import Iterable

from resurge.errors import SimulationError

GAP = "(gap)"
"""Stands for an epoch that a query partition has skipped."""


class Sink:
    """Parts that were published, each with the attempt that staged it; publishing the same part again changes nothing."""

    def __init__(self, queries: Iterable[str]) -> None:
        self.published: dict[str, list[str]] = {query: [] for query in queries}

    def skip(self, query: str, epoch: int) -> None:
        """Readers of a query partition see nothing of the epochs up to this one that it has not published: a declared gap."""
        mine = self.published[query]
        mine += [GAP] * (epoch - len(mine))

    def publish(self, attempt: str, parts: Iterable[tuple[str, int]]) -> None:
        """Let readers see parts whose commit is logged."""
        for query, epoch in parts:
            mine = self.published[query]
            if epoch <= len(mine) and mine[epoch - 1] == attempt:
                continue
            # Checked right here, so that the step that broke it is the one that is named.
            if epoch != len(mine) + 1:
                what = "repeated" if epoch <= len(mine) else "lost"
                raise SimulationError(
                    f"query partition {query} published epoch {epoch} of attempt {attempt} after {len(mine)} epochs; "
                    f"expected epoch {len(mine) + 1}: output was {what}"
                )
            mine.append(attempt)
