"""Sinks that delete what is written to them."""

import time

import pytest

from sparkrelay.errors import AuthorizationException
from sparkrelay.runtime.contract.commands import LegReport
from sparkrelay.runtime.topics.retention import RetentionWatch, retention_ms
from sparkrelay.types import TaskId

WEEK = 604_800_000


@pytest.mark.parametrize(
    ("configs", "kept"),
    [
        ({"retention.ms": str(WEEK), "cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}, WEEK),
        ({"retention.ms": str(WEEK), "cleanup.policy": "compact,delete"}, WEEK),
        ({"retention.ms": str(WEEK), "cleanup.policy": "compact"}, None),
        ({"retention.ms": str(WEEK), "cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime"}, None),
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, None),
        ({}, None),
    ],
)
def test_how_long_a_topic_keeps_records(configs, kept):
    assert retention_ms(configs) == kept


@pytest.fixture
def asked():
    return []


@pytest.fixture
def note(asked):
    """`note(topic=days)`: a batch wrote rows that are so old."""

    def ask(topic):
        asked.append(topic)
        if topic == "secret":
            raise AuthorizationException("no right to describe it")
        return WEEK if topic == "out" else None

    watch = RetentionWatch(ask)

    def batch(**days):
        oldest = {topic: int((time.time() - 86_400 * age) * 1000) for topic, age in days.items()}
        watch.note([LegReport("leg", TaskId(0, 0), 1, oldest_out=oldest)])

    return batch


def test_rows_that_a_topic_will_delete_soon_are_warned_of_once(note, asked, caplog):
    note(out=6)
    assert not caplog.records
    note(out=8)
    note(out=9)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert (
        "'out' deletes records 7 days, 0:00:00 after their timestamps (retention.ms=604800000)" in record.getMessage()
    )
    assert "--topic out --add-config retention.ms=-1" in record.getMessage()
    assert asked == ["out"]


def test_nobody_is_warned_of_topics_that_keep_all_or_cannot_be_looked_at(note, asked, caplog):
    for _ in range(2):
        note(kept=5000, secret=5000, live=0)
    assert asked == ["kept", "secret"]
    assert not caplog.records


def test_a_time_before_all_calendars_is_reported_as_well(note, caplog):
    note(out=366 * 3000)
    assert "and rows of -" in caplog.text
