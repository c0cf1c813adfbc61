"""What stands around managers in their tests: a coordinator that is known, topics that are looked up, commits."""

from __future__ import annotations

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.group_requests import GroupMetadata, OffsetAndMetadata
from sparkrelay.consumer.base.events import Commit
from sparkrelay.consumer.offsets.commits import CommitManager
from sparkrelay.types import TopicPartition

T0 = TopicPartition("t", 0)


class Located:
    """A coordinator that is known until it is lost."""

    def __init__(self, node=1):
        self.node, self.last_error, self.losses = node, None, []

    def need(self):
        return self.node

    def lost(self, why):
        self.losses.append(why)

    def moved(self, code):
        if code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self.lost(code)
            return True
        return False

    def silent(self, node, why):
        self.lost(why)


class Topics:
    def __init__(self):
        self.asked = []

    def ask(self, topics, done):
        self.asked.append((topics, done))

    def answer(self):
        _, done = self.asked.pop(0)
        done()


class Member:
    """What a test does with a membership, its steps and its driver, whatever the protocol."""

    @property
    def state(self):
        return self.membership.state

    def step(self, kind):
        step = self.steps.pop(0)
        assert isinstance(step, kind)
        return step

    def reply(self, answer):
        self.membership.answered(answer, self.driver.now)


class Asker:
    def __init__(self):
        self.refreshed = 0

    def refresh(self):
        self.refreshed += 1


class Committing:
    def __init__(self, driver, cluster, make_state):
        self.place, self.fenced, self.coordinator = GroupMetadata("g", 5, "m"), [], Located()
        self.metadata, self.stale = cluster({"t": 2}), []
        #: What the membership answers to a refused commit; False between two generations.
        self.expelled = True
        self.manager = self.another(make_state)
        self.driver = driver(self.manager)

    def another(self, make_state, **settings):
        """Return a manager in the same surroundings."""
        return CommitManager(
            "g",
            coordinator=self.coordinator,
            metadata=self.metadata,
            stale=self.stale.append,
            place=lambda: self.place,
            fenced=lambda code: self.fenced.append(code) or self.expelled,
            make_state=make_state,
            **settings,
        )

    def commit(self, call, offset=1, *, retry=True, automatic=False):
        self.manager.commit(Commit(call, {T0: OffsetAndMetadata(offset)}, retry, automatic))
