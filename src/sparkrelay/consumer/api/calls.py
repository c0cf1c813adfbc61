"""The questions that both faces of the consumer ask, as calls: submitted here, waited for elsewhere.

A program that blocks and one that awaits differ only in how they wait for a ``Call``; what they ask is the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sparkrelay.consumer.base.arguments import seconds_of
from sparkrelay.consumer.base.committed_offsets import wire_offsets
from sparkrelay.consumer.base.events import Call, Commit, FetchCommitted, ListOffsets, TopicsAsked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.consumer.base.committed_offsets import OffsetsToCommit
    from sparkrelay.consumer.base.config import ConsumerConfig
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.network.network_thread import ConsumerHandle
    from sparkrelay.types import TopicPartition

__all__ = ["Calls"]


class Calls:
    """Asks the network thread; every method returns at once.

    Args:
        network: answers.
        config: the consumer's settings.
        subscription: knows in which topics positions were found.
    """

    def __init__(self, network: ConsumerHandle, config: ConsumerConfig, subscription: SubscriptionState) -> None:
        self._network = network
        self._config = config
        self._subscription = subscription

    def deadline(self, timeout: float | None = None) -> float:
        """Return the monotonic time that is ``timeout`` seconds away; None is ``default.api.timeout.ms``."""
        default = self._config.default_api_timeout_ms / 1000
        return time.monotonic() + (default if timeout is None else seconds_of("waiting for an answer", timeout))

    def commit(self, offsets: OffsetsToCommit, deadline: float, *, retry: bool, automatic: bool = False) -> Call:
        """Commit offsets; see ``events.Commit``."""
        call = Call("committing offsets", deadline)
        wanted = wire_offsets(offsets)
        # Now: the application may seek, or give partitions up, before the commit goes out.
        found_in = self._subscription.topic_ids(wanted)
        self._network.submit(Commit(call, wanted, retry, automatic, found_in), call)
        return call

    def committed(self, partitions: frozenset[TopicPartition], deadline: float) -> Call:
        """Ask for committed offsets; see ``commits.Committed``."""
        call = Call("fetching committed offsets", deadline)
        self._network.submit(FetchCommitted(call, partitions), call)
        return call

    def list_offsets(self, wanted: Mapping[TopicPartition, int], deadline: float) -> Call:
        """Ask for offsets by timestamp, start or end."""
        names = ", ".join(map(str, sorted(wanted)[:3])) + (", ..." if len(wanted) > 3 else "")
        call = Call(f"listing offsets of {names}", deadline)
        self._network.submit(ListOffsets(call, wanted, self._config.read_committed), call)
        return call

    def topics(self, topics: frozenset[str] | None, deadline: float) -> Call:
        """Have the metadata of topics refreshed; None for all of them."""
        what = "asking for the topics" if topics is None else f"asking for topic {', '.join(map(repr, topics))}"
        call = Call(what, deadline)
        self._network.submit(TopicsAsked(call, topics), call)
        return call
