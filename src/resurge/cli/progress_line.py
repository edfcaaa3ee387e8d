"""What long work is at: one line that changes on a terminal, a line each elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def progress_line(console: Console, beginning: str) -> Iterator[Callable[[str], None]]:
    """A function that says what is being done now."""
    if not console.is_terminal:
        console.print(beginning, soft_wrap=True)
        yield lambda now: console.print(now, soft_wrap=True)
        return
    with console.status(beginning) as status:
        yield status.update
