"""What Kafka Streams' wire format has no field for travels as client tags ``sparkrelay.*``.

Java members carry unknown tags along and ignore them; task assignors of ours never see them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ASSIGNOR_TAG", "PAGE_TAG", "RESERVED_TAG_PREFIX", "TOPOLOGY_TAG", "split_tags"]

#: Keys that begin so belong to SparkRelay; a user may not set them.
RESERVED_TAG_PREFIX = "sparkrelay."

#: Fingerprint of the member's topology: instances with different ones are refused by name.
TOPOLOGY_TAG = RESERVED_TAG_PREFIX + "topology"

#: The member's task assignor: the leader runs one that all members support.
ASSIGNOR_TAG = RESERVED_TAG_PREFIX + "assignor"

#: ``host:port`` at which the group's other instances find the member's page (``metrics.port``), if it has one.
PAGE_TAG = RESERVED_TAG_PREFIX + "page"


def split_tags(tags: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Part a member's tags.

    Returns:
        The user's own tags, and the reserved ones; both immutable, reserved keys keep their prefix.
    """
    own = {key: value for key, value in tags.items() if not key.startswith(RESERVED_TAG_PREFIX)}
    reserved = {key: value for key, value in tags.items() if key.startswith(RESERVED_TAG_PREFIX)}
    return MappingProxyType(own), MappingProxyType(reserved)
