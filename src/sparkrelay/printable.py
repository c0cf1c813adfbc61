"""Text of others made fit for a line of the log: whoever may write a record must not write our log.

A newline in a quoted record would begin a line that looks like one of ours, ESC moves the terminal's cursor, and the
controls of writing direction show the characters in another order than they have.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["printable", "printable_lines"]

#: C0, DEL, C1; the marks, embeddings, overrides and isolates of writing direction; line and paragraph separator. And
#: lone surrogates, which no stream can write.
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    """Write control characters as Python does in a literal; all else, backslashes among it, stays as it is."""
    return _CONTROLS.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Do so in a text of several lines, and indent all but the first: none of them looks like one of the log's own."""
    return "\n    ".join(map(printable, text.expandtabs(4).split("\n")))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _SHORT.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
