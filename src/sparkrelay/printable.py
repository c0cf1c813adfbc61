"""Escapes untrusted text for the log, so that the author of a record cannot forge log lines.

A newline in a quoted record would begin a line that looks like one of ours, ESC moves the terminal's cursor, and
directional control characters change the displayed order.
"""

from __future__ import annotations

import re
from typing import Final

#: C0, DEL, C1; directional marks, embeddings, overrides and isolates; line and paragraph separators; lone surrogates,
#: which no stream can write.
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    """Escape control characters as in a Python literal; everything else, including backslashes, is unchanged."""
    return _CONTROLS.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Escape a text of several lines, and indent all but the first, so that none looks like a log line."""
    return "\n    ".join(map(printable, text.expandtabs(4).split("\n")))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _SHORT.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
