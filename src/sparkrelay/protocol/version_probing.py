"""Negotiation of the assignment protocol's version, while a group has old and new members (KIP-268).

The leader answers in the lowest version that it received, and names the highest that all members understand. So a
member in an older group steps down, and steps up once the last old member has left. Each step takes one rebalance,
which the member requests at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkrelay.protocol.common import LATEST_SUPPORTED_VERSION


@dataclass(slots=True)
class SpokenVersion:
    """A member's version: ``used`` in its next subscription, ``latest`` if the whole group understands it."""

    used: int = LATEST_SUPPORTED_VERSION
    latest: int = LATEST_SUPPORTED_VERSION

    def answered(self, version: int, commonly_supported_version: int) -> bool:
        """Apply the leader's answer; return whether the version changed, so that the member must rejoin.

        Args:
            version: The version of the answer.
            commonly_supported_version: The highest version that all members understand.
        """
        # An answer in a lower version is no reason to step down if all understand ours: others are about to step up.
        # (Kafka does step down there.) Versions 1 and 2 have no common version.
        common = commonly_supported_version if commonly_supported_version > 0 else version
        wanted = min(self.latest, common)
        changed, self.used = wanted != self.used, wanted
        return changed
