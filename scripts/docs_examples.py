"""Show the examples of docstrings as code: `>>>` begins a quotation in Markdown."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>>.*\n?(?:^(?!>>>)\S.*\n?|^\.\.\..*\n?)*)+", re.MULTILINE)


class Examples(griffe.Extension):
    """Puts a fence around every example."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value)
