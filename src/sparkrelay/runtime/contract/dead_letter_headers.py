"""The headers that a dead letter gets behind its own, with the names that Kafka Streams gives them (KIP-1034)."""

from __future__ import annotations

from typing import Final

__all__ = ["EXCEPTION", "MESSAGE", "OFFSET", "PARTITION", "PREFIX", "TOPIC", "TRACE"]

PREFIX: Final = "__streams.errors."
#: Name of the class of what was raised, what it said, and where.
EXCEPTION: Final = f"{PREFIX}exception"
MESSAGE: Final = f"{PREFIX}message"
TRACE: Final = f"{PREFIX}stacktrace"
#: Where the record was; numbers are decimal.
TOPIC: Final = f"{PREFIX}topic"
PARTITION: Final = f"{PREFIX}partition"
OFFSET: Final = f"{PREFIX}offset"
