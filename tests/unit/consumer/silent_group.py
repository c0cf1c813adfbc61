"""Sessions whose managers are the test's: a group that takes what it gets and says nothing."""

from __future__ import annotations

import contextlib
import math

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer.api.access import AccessControl
from sparkrelay.consumer.api.session import Session
from sparkrelay.consumer.base.events import Leave
from sparkrelay.consumer.base.requests import PollResult


class SilentCore:
    """Managers of a member that says nothing; what they got is in ``events``."""

    awaits_poll = given_up = False

    def __init__(self):
        self.managers, self.now = (self,), 0.0
        self.group_metadata = GroupMetadata("g", 5, "m")
        self.events = []

    def process(self, event, now):
        self.events.append(event)

    def poll(self, now):
        return PollResult(wait=math.inf)

    def last_requests(self):
        return ()

    def answered(self, *_):
        pass


class LeavingCore(SilentCore):
    """The same, but a member may leave."""

    def process(self, event, now):
        super().process(event, now)
        if isinstance(event, Leave):
            event.call.resolve(None)


class Face:
    """Whoever has the session."""


@contextlib.contextmanager
def sessions(make_core):
    """Give what makes sessions from settings, with ``_`` for dots; at the end their threads are stopped."""
    made, face = [], Face()

    class WithCore(Session):
        def _make_core(self, client):
            del client
            return make_core()

    def make(**config):
        settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
        session = WithCore(
            face,
            settings | {key.replace("_", "."): value for key, value in config.items()},
            AccessControl(),
            assignors=(),
            key_deserializer=None,
            value_deserializer=None,
            fetching=True,
            network=None,
        )
        made.append(session)
        return session

    yield make
    for session in made:
        session.network.stop(5)
