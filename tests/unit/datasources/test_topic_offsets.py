"""Where batches begin and end, in Spark's spelling."""

import pytest

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.datasources.cluster import Span
from sparkrelay.datasources.topic_offsets import read_offsets, spans_between
from sparkrelay.errors import ConfigException, UnknownTopicException
from sparkrelay.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Cluster:
    """Two partitions of a topic, one of them cut."""

    def partitions(self, topics):
        return {topic: [A0, A1] if topic == "a" else [] for topic in topics}

    def spans(self, partitions):
        return [Span(partition, 5 if partition == A0 else 0, 20) for partition in partitions]


def between(start, end="latest", topics=("a",)):
    starts, ends = (
        read_offsets("startingOffsets", start, refused="latest"),
        read_offsets("endingOffsets", end, refused="earliest"),
    )
    return [(span.start, span.stop) for span in spans_between(Cluster(), topics, starts, ends)]


def test_words_and_offsets():
    assert read_offsets("startingOffsets", " Earliest ", refused="latest") == EARLIEST
    assert read_offsets("endingOffsets", "latest", refused="earliest") == LATEST
    assert between("earliest") == [(5, 20), (0, 20)]
    assert between('{"a": {"0": 7, "1": -2}}', '{"a": {"0": -1, "1": 3}}') == [(7, 20), (0, 3)]
    assert between('{"a": {"0": 9, "1": 9}}', '{"a": {"0": 8, "1": 9}}') == [(9, 9), (9, 9)]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("latest", "would be empty"),
        ("soon", "must be 'earliest', or JSON such as {\"orders\""),
        ("[1]", "must be 'earliest'"),
        ('{"a": 3}', "must be 'earliest'"),
        ('{"a": {"x": 3}}', "must be 'earliest'"),
        ('{"a": {"0": -1, "1": 0}}', "has -1 for a-0; give an offset, or -2 for earliest"),
        ('{"a": {"0": "5", "1": 0}}', "has '5' for a-0"),
        ('{"a": {"0": true, "1": 0}}', "has True for a-0"),
        ('{"a": {"0": 5}}', "must name exactly the partitions of the topics; check a-1"),
        ('{"a": {"0": 5, "1": 0, "2": 0}}', "check a-2"),
        ('{"a": {"0": 4, "1": 0}}', "has 4 for a-0, which has offsets 5 to 20"),
        ('{"a": {"0": 5, "1": 21}}', "has 21 for a-1, which has offsets 0 to 20"),
    ],
)
def test_what_cannot_be_is_refused(start, words):
    with pytest.raises(ConfigException) as refused:
        between(start)
    assert words in str(refused.value)


def test_a_topic_that_does_not_exist_is_named():
    with pytest.raises(UnknownTopicException, match="'b' does not exist"):
        between("earliest", topics=("a", "b"))
