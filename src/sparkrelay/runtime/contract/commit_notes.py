"""What is noted with the group's offsets: a JSON object for a partition, each part of it somebody's own."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MOST_CHARACTERS", "SOURCE_CHANGELOG", "note_parts", "note_text"]

#: Brokers take 4,096 bytes (``offset.metadata.max.bytes``); the text is ASCII.
MOST_CHARACTERS: Final = 4000
#: What is noted of a topic that is a table's changelog as well. Nothing else says so once the setting is taken back.
SOURCE_CHANGELOG: Final[Mapping[str, Any]] = MappingProxyType({"source_changelog": True})


def note_text(parts: Mapping[str, Any]) -> str:
    """Return the text of a note; empty if there is nothing to be noted."""
    return json.dumps(dict(parts), separators=(",", ":")) if parts else ""


def note_parts(text: str) -> dict[str, Any]:
    """Return the parts of a note; none where somebody else has written it."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
