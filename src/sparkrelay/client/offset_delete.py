"""OffsetDelete (KIP-496): kafka-python brings its definition, but no class for it."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

__all__ = ["OffsetDeleteRequest", "OffsetDeleteResponse"]


class OffsetDeleteRequest(ApiMessage):  # type: ignore[misc]
    """Forget a group's offsets of some partitions."""


class OffsetDeleteResponse(ApiMessage):  # type: ignore[misc]
    """An error code for the group, and one for each partition."""
