"""Start and end of a batch of topics, written as for Spark's Kafka source: earliest, latest, or offsets in JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.datasources.cluster import Span
from sparkrelay.errors import ConfigException, UnknownTopicException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.datasources.cluster import Cluster

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_EXAMPLE: Final = '{"orders": {"0": 23, "1": -1}}'


def read_offsets(option: str, said: str, *, refused: str) -> int | dict[TopicPartition, int]:
    """Parse the start or end of a batch: ``EARLIEST`` or ``LATEST``, or by partition an offset or one of these.

    Raises:
        ConfigException: the value is something else, or ``refused``, with which the batch would be empty.
    """
    word = said.strip().lower()
    if word == refused:
        raise ConfigException(f'option("{option}", "{said}"): the batch would be empty')
    if word in _WORDS:
        return _WORDS[word]
    try:
        found = {
            TopicPartition(topic, int(number)): offset
            for topic, numbers in json.loads(said).items()
            for number, offset in numbers.items()
        }
    except (ValueError, AttributeError, RecursionError) as error:
        words = " or ".join(repr(known) for known in _WORDS if known != refused)
        raise ConfigException(f'option("{option}", {said!r}) must be {words}, or JSON such as {_EXAMPLE}') from error
    for partition, offset in found.items():
        if type(offset) is not int or offset < EARLIEST or offset == _WORDS[refused]:
            raise ConfigException(
                f'option("{option}", ...) has {offset!r} for {partition}; give an offset, or '
                f"{EARLIEST if refused == 'latest' else LATEST} for {'earliest' if refused == 'latest' else 'latest'}"
            )
    return found


def spans_between(
    cluster: Cluster,
    topics: Sequence[str],
    starts: int | Mapping[TopicPartition, int],
    ends: int | Mapping[TopicPartition, int],
) -> list[Span]:
    """Return the offsets to read of each partition of topics.

    Raises:
        ConfigException: offsets leave a partition out or name another one, or an offset is not in its partition.
        UnknownTopicException: a topic does not exist.
    """
    found = cluster.partitions(topics)
    if missing := [topic for topic, partitions in found.items() if not partitions]:
        raise UnknownTopicException(f"topic {missing[0]!r} does not exist: was it created on this cluster?")
    partitions = [partition for some in found.values() for partition in some]
    for option, said in (("startingOffsets", starts), ("endingOffsets", ends)):
        if not isinstance(said, int) and set(said) != set(partitions):
            differing = sorted(set(said) ^ set(partitions))
            raise ConfigException(
                f'option("{option}", ...) must name exactly the partitions of the topics; check {differing[0]}'
            )
    spans = []
    for there in cluster.spans(partitions):
        start, stop = (_at(said, there) for said in (starts, ends))
        for option, offset in (("startingOffsets", start), ("endingOffsets", stop)):
            if not there.start <= offset <= there.stop:
                raise ConfigException(
                    f'option("{option}", ...) has {offset} for {there.partition}, which has offsets {there.start} to '
                    f"{there.stop}"
                )
        spans.append(Span(there.partition, start, max(start, stop)))
    return spans


def _at(said: int | Mapping[TopicPartition, int], there: Span) -> int:
    offset = said if isinstance(said, int) else said[there.partition]
    return {EARLIEST: there.start, LATEST: there.stop}.get(offset, offset)
