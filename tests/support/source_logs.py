"""A source log in memory, which counts what is asked of it."""

from dataclasses import dataclass, field


@dataclass
class MemoryLog:
    """Numbered entries, each written once."""

    entries: dict[int, bytes] = field(default_factory=dict)
    skips: list[str] = field(default_factory=list)
    reads: int = 0
    listings: int = 0

    def create(self, number: int, content: bytes) -> bool:
        return self.entries.setdefault(number, content) is content

    def read(self, number: int) -> bytes:
        self.reads += 1
        return self.entries[number]

    def numbers(self) -> list[int]:
        self.listings += 1
        return sorted(self.entries)

    def remove(self, number: int) -> None:
        self.entries.pop(number, None)

    def skipped(self) -> list[str]:
        return self.skips
