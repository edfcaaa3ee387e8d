"""What a sink must remember to show every part once: a small value that is kept in the same transaction as the rows."""

from collections.abc import Iterator, Sequence

import msgspec

from resurge.connectors.contracts import StagedPart


class PublishedParts(msgspec.Struct, frozen=True):
    """The last epoch that each part has shown. Of a part that is not named here, all up to `forgotten` was shown."""

    parts: dict[str, int] = {}
    forgotten: int = -1

    def unseen(self, parts: Sequence[StagedPart]) -> list[StagedPart]:
        """Those with rows that are not shown yet, each once, in order of epochs.

        >>> PublishedParts({"0": 3}).unseen([StagedPart("q", 3, "0", 1), StagedPart("q", 4, "0", 1), StagedPart("q", 3, "1", 1)])
        [StagedPart(query='q', epoch=3, part='1', rows=1, location=None, payload=None, key_groups=()), StagedPart(query='q', epoch=4, part='0', rows=1, location=None, payload=None, key_groups=())]
        """
        new = {(part.epoch, part.part): part for part in parts if part.rows and part.epoch > self._shown(part.part)}
        return [new[key] for key in sorted(new)]

    def after(self, parts: Sequence[StagedPart]) -> "PublishedParts":
        """What is shown once these are too."""
        shown = dict(self.parts)
        for part in parts:
            shown[part.part] = max(part.epoch, shown.get(part.part, self.forgotten))
        return PublishedParts(shown, self.forgotten)

    def forget(self, epoch: int) -> "PublishedParts":
        """Without the parts of epochs that are never published again."""
        if epoch <= self.forgotten:
            return self
        return PublishedParts({part: last for part, last in self.parts.items() if last > epoch}, epoch)

    def _shown(self, part: str) -> int:
        return self.parts.get(part, self.forgotten)

    def encode(self) -> bytes:
        """As it is kept."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(content: bytes | str | None) -> "PublishedParts":
        """As it was kept; nothing kept is nothing shown."""
        return PublishedParts() if content is None else msgspec.json.decode(content, type=PublishedParts)


def in_transactions(parts: Sequence[StagedPart], max_rows: int) -> Iterator[list[StagedPart]]:
    """The parts in order, as many at a time as fit: after a long recovery many epochs come at once."""
    taken: list[StagedPart] = []
    rows = 0
    for part in parts:
        if taken and rows + part.rows > max_rows:
            yield taken
            taken, rows = [], 0
        taken.append(part)
        rows += part.rows
    if taken:
        yield taken
