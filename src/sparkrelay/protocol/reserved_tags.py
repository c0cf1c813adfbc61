"""Client tags ``sparkrelay.*``, which carry what Kafka Streams' wire format has no field for.

Java members pass unknown tags on and ignore them; our task assignors never see them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Prefix of SparkRelay's keys; users may not set them.
RESERVED_TAG_PREFIX = "sparkrelay."

#: Fingerprint of the member's topology: different ones in a group are refused by name.
TOPOLOGY_TAG = RESERVED_TAG_PREFIX + "topology"

#: The member's task assignor: the leader runs one that all members support.
ASSIGNOR_TAG = RESERVED_TAG_PREFIX + "assignor"

#: ``host:port`` of the member's page (``metrics.port``) for the group's other instances, if it has one.
PAGE_TAG = RESERVED_TAG_PREFIX + "page"


def split_tags(tags: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Split tags into the user's own and the reserved ones (with their prefix); both immutable."""
    own = {key: value for key, value in tags.items() if not key.startswith(RESERVED_TAG_PREFIX)}
    reserved = {key: value for key, value in tags.items() if key.startswith(RESERVED_TAG_PREFIX)}
    return MappingProxyType(own), MappingProxyType(reserved)
