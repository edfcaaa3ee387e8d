"""The layout of the durable store and of a node's local store, spelled here and nowhere else."""

JOB = "job.json"
JOURNAL = "journal"
JOURNAL_TRIMMED = "journal/trimmed"
CHECKPOINTS = "checkpoints"
CHECKPOINT_DATA = "checkpoints/data"
SOURCES = "sources"
SKIPS = "skips"
OUTCOMES = "outcomes"
PART_ROWS = "parts"
REQUESTS = "requests"
TELEMETRY = "telemetry.jsonl"


def probe(token: str) -> str:
    """A file by which it is found out what the store can do."""
    return f"probe-{token}"


def journal_entry(number: int) -> str:
    """A journal record."""
    return f"{JOURNAL}/{number:012d}.json"


def checkpoint_manifest(epoch: int, generation: int, attempt: int = 0) -> str:
    """The manifest of a global checkpoint."""
    return f"{CHECKPOINTS}/{epoch:012d}-{generation:06d}{f'-{attempt}' if attempt else ''}.json"


def checkpoint_segment(epoch: int, attempt: str, slot: int) -> str:
    """Runs that one slot saved at one checkpoint."""
    return f"{CHECKPOINT_DATA}/{epoch:012d}-{attempt}-{slot:05d}.runs"


def source_entry(source: str, number: int) -> str:
    """An entry of a source's own log."""
    return f"{SOURCES}/{source}/{number:012d}.json"


def source_folder(source: str) -> str:
    """The folder of a source's own."""
    return f"{SOURCES}/{source}"


def skip(number: int) -> str:
    """The record of a file that is skipped."""
    return f"{SKIPS}/{number:012d}.json"


def outcome(operator: str, branch: int, epoch: int, plan: int, order: int) -> str:
    """What an operator that is not deterministic made of one plan of an epoch, on one branch, for one split or key group."""
    return f"{OUTCOMES}/{epoch:012d}-{plan:06d}-{order:05d}-{branch:03d}-{operator}.outcome"


def part_rows(epoch: int, generation: int, number: int) -> str:
    """The rows of a commit's parts that carry them, written before the commit's journal record of that number."""
    return f"{PART_ROWS}/{epoch:012d}-{generation:06d}-{number:012d}.parts"


def request(generation: int, name: str) -> str:
    """What a user asks of the driver of a generation."""
    return f"{REQUESTS}/{generation:06d}-{name}.json"


def answer(generation: int, name: str, number: int) -> str:
    """The first or second answer to a request."""
    return f"{REQUESTS}/{generation:06d}-{name}.answer-{number}"


def local_segment(epoch: int, attempt: str, slot: int) -> str:
    """Runs and manifests that one slot wrote in one epoch attempt."""
    return f"{epoch:012d}-{attempt}-{slot:05d}.runs"


def slot_segment(epoch: int, attempt: str, level: int, slot: int) -> str:
    """What one slot wrote at one level of a job."""
    return local_segment(epoch, f"{attempt}-{level}", slot)


def local_buffer(segment: str) -> str:
    """What one slot buffered in the attempt that wrote a segment."""
    return f"{segment}.buffer"


def local_taken(segment: str) -> str:
    """The states of a segment that belong to a checkpoint."""
    return f"{segment}.taken"


def local_written(segment: str) -> str:
    """Where the states of a segment that belong to a checkpoint are in the durable store."""
    return f"{segment}.written"


def number_of(path: str) -> int | None:
    """The number that a file name begins with, or None for a file that is not ours."""
    stem = path.rsplit("/", 1)[-1].split(".", maxsplit=1)[0].split("-", maxsplit=1)[0]
    return int(stem) if stem.isdigit() else None
