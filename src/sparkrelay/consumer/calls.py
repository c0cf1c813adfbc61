"""The operations that both faces of the consumer offer, as calls: submitted here, waited for elsewhere.

A program that blocks and one that awaits differ only in how they wait for a ``Call``; what they ask is the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.consumer.events import Call, Commit, FetchCommitted, ListOffsets, TopicsAsked
from sparkrelay.errors import ConfigException, WakeupException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.consumer.config import ConsumerConfig
    from sparkrelay.consumer.events import Mailbox
    from sparkrelay.consumer.network import Outlet
    from sparkrelay.consumer.subscription import SubscriptionState
    from sparkrelay.types import TopicPartition

__all__ = ["Calls", "wait_for"]

#: The network thread fails a call at its deadline; this long after it, we no longer believe that it will.
_GRACE_SECONDS: Final = 5.0


class Calls:
    """Asks the network thread; every method returns at once.

    Args:
        network: answers.
        config: the consumer's settings.
        subscription: where the positions are.
    """

    def __init__(self, network: Outlet, config: ConsumerConfig, subscription: SubscriptionState) -> None:
        self._network = network
        self._config = config
        self._subscription = subscription

    def deadline(self, timeout: float | None = None) -> float:
        """Return the monotonic time that is ``timeout`` seconds away; None is ``default.api.timeout.ms``."""
        return time.monotonic() + (self._config.default_api_timeout_ms / 1000 if timeout is None else timeout)

    def commit(self, offsets: Mapping[TopicPartition, int] | None, deadline: float, *, retry: bool) -> Call:
        """Commit offsets, or all positions as they are now."""
        positions = self._subscription.positions() if offsets is None else offsets
        for partition, offset in positions.items():
            if offset < 0:
                raise ConfigException(f"commit of offset {offset} for {partition}: offsets are not negative")
        call = Call("committing offsets", deadline)
        self._network.submit(Commit(call, {p: (o, -1, "") for p, o in positions.items()}, retry), call)
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

    def topic(self, topic: str, deadline: float) -> Call:
        """Have a topic's metadata refreshed."""
        call = Call(f"asking for topic {topic!r}", deadline)
        self._network.submit(TopicsAsked(call, frozenset([topic])), call)
        return call


def wait_for(call: Call, mailbox: Mailbox, *, interruptible: bool) -> Any:
    """Block until a call's outcome is known, and return its result.

    Args:
        call: what to wait for; it goes on in the background if a wakeup ends the wait.
        mailbox: where this thread waits.
        interruptible: whether ``wakeup`` ends the wait.

    Raises:
        WakeupException: ``wakeup`` was called.
        Exception: the call's error.
    """
    call.future.add_done_callback(mailbox.notify)
    limit = call.deadline + _GRACE_SECONDS
    while not call.done:
        mailbox.wait(lambda: call.done, limit, for_events=False, for_wakeup=interruptible)
        if not call.done and interruptible and mailbox.take_wakeup():
            raise WakeupException(f"wakeup() was called while {call.what}")
        if not call.done and time.monotonic() >= limit:
            call.fail(call.timed_out())
    return call.future.result()
