"""Headers of a dead letter, added after the record's own, named as in Kafka Streams (KIP-1034)."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "__streams.errors."
#: Class, message and stack of the exception.
EXCEPTION: Final = f"{PREFIX}exception"
MESSAGE: Final = f"{PREFIX}message"
TRACE: Final = f"{PREFIX}stacktrace"
#: Origin of the record; numbers are decimal.
TOPIC: Final = f"{PREFIX}topic"
PARTITION: Final = f"{PREFIX}partition"
OFFSET: Final = f"{PREFIX}offset"
