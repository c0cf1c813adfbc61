"""Writes the page of all commands from what they say of themselves.

python docs/commands.py > docs/reference/commands.md
"""

from __future__ import annotations

import sys

from sparkrelay.cli.app import app

__all__ = ["page"]

_HEAD = """# Commands

What `sparkrelay COMMAND --help` says, of all commands.

Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage, 130 interrupted, 141 nobody reads what it
writes; a command that has others says so. `SPARKRELAY_TRACEBACK=1` shows where an error came from.
"""


def page() -> str:
    """Return the page."""
    text = app.generate_docs(output_format="markdown", recursive=True)
    # Without its own list of contents: the site gives each page one.
    begin = text.index("\n## sparkrelay ")
    return f"{_HEAD}{text[begin:].rstrip()}\n"


if __name__ == "__main__":
    sys.stdout.write(page())
