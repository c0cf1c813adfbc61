"""The heartbeat of KIP-848, which kafka-python does not bring: compiled by it from our definitions.

One message does all that JoinGroup, SyncGroup, Heartbeat and LeaveGroup do under the classic protocol. Version 1 adds
the regular expression that the broker matches.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

from sparkrelay.client import definitions

__all__ = ["ConsumerGroupHeartbeatRequest", "ConsumerGroupHeartbeatResponse"]


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=definitions):  # type: ignore[call-arg, misc]
    """Join (epoch 0), live on, acknowledge, or leave (epoch -1, or -2 for a static member that comes back)."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=definitions):  # type: ignore[call-arg, misc]
    """The member's epoch, when to come again and, if it changed, the assignment."""
