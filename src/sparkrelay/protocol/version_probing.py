"""Which version of the assignment protocol a member speaks, while old and new ones are in one group.

A leader answers in the lowest version that it received, and names the highest that all members understand. So a
member that meets an older group steps down, and steps up again once the last old member is gone; each step takes one
rebalance, which the member asks for at once. See KIP-268.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkrelay.protocol.common import LATEST_SUPPORTED_VERSION

__all__ = ["SpokenVersion"]


@dataclass(slots=True)
class SpokenVersion:
    """One member's version: ``used`` in its next subscription, ``latest`` if all the group understood it."""

    used: int = LATEST_SUPPORTED_VERSION
    latest: int = LATEST_SUPPORTED_VERSION

    def answered(self, version: int, commonly_supported_version: int) -> bool:
        """Take the leader's answer; return whether the version changed, so that the member must join anew.

        Args:
            version: The version that the answer is written in.
            commonly_supported_version: The highest that all members understand, as the leader knows.
        """
        # An answer in a lower version is no reason to step down if all understand ours: others are about to step up.
        # (Kafka steps down there, and meets them on their way up.) Versions 1 and 2 do not say what is common.
        common = commonly_supported_version if commonly_supported_version > 0 else version
        wanted = min(self.latest, common)
        changed, self.used = wanted != self.used, wanted
        return changed
