"""What an application makes of the broker's answers about its topics."""

import pytest

from sparkrelay import StreamsBuilder
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import UnknownTopicException
from sparkrelay.runtime.topics import topics
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.runtime.topics.topics import Topics

pytestmark = pytest.mark.usefixtures("spark")


class Admin:
    """Knows topics, but not in the next so many answers."""

    def __init__(self, *known):
        self.known = known
        self.silent = 0
        self.asked = 0

    def partitions(self, names):
        self.asked += 1
        self.silent -= 1
        return {name: [0] if name in self.known and self.silent < 0 else None for name in names}


@pytest.fixture
def admin():
    return Admin("in", "out")


@pytest.fixture
def asking(admin, monkeypatch):
    monkeypatch.setattr(topics, "_PAUSE_SECONDS", 0.0)
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "h:1"})
    return Topics(admin, builder.build(), TopicNames("app"), config)


def test_a_topic_that_is_not_there_for_a_moment_is_looked_for(asking, admin):
    before = asking.layout()
    admin.silent = 3
    assert asking.layout() == before
    assert admin.asked == 1 + 4


def test_a_topic_that_stays_away_is_missed(asking, admin, monkeypatch):
    monkeypatch.setattr(topics, "_RETURN_SECONDS", 0.05)
    asking.layout()
    admin.known = ("in",)
    with pytest.raises(UnknownTopicException, match="'out' of to\\(\\) does not exist"):
        asking.layout()
    assert admin.asked > 2


def test_a_topic_that_was_never_there_is_not_waited_for(asking, admin):
    admin.known = ("out",)
    with pytest.raises(UnknownTopicException, match="source topic 'in' does not exist"):
        asking.layout()
    assert admin.asked == 1
