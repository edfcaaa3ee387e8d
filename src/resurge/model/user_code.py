"""Where in the user's own code an error came from."""

import traceback
from pathlib import Path

import polars as pl

_OURS = str(Path(__file__).resolve().parent.parent)
_POLARS = str(Path(pl.__file__).resolve().parent)
_MOST_FRAMES = 6


def user_traceback(error: BaseException) -> str:
    """The lines of the user's code that led to an error, innermost last, each on a line of its own; "" if there are none.

    >>> try:
    ...     [1, 2][5]
    ... except IndexError as error:
    ...     print(user_traceback(error).strip().split(",")[1])
     line 2
    """
    cause: BaseException | None = error
    while cause is not None:
        frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if not frame.filename.startswith((_OURS, _POLARS))]
        if frames:
            return "\n" + "".join(traceback.format_list(frames[-_MOST_FRAMES:])).rstrip("\n")
        cause = cause.__cause__
    return ""
