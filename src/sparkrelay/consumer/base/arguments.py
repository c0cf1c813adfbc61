"""Checks of the application's arguments: each function returns the checked value or raises ConfigException.

A wrong argument must be reported by the call that got it. Later it would be found by the network thread, which has no
caller, by the encoder of a request, or never. ``what`` is the call, for messages.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.errors import ConfigException
from sparkrelay.settings import shortly, string_problem
from sparkrelay.types import TopicPartition

_MOST_INT32: Final = 2**31 - 1
_MOST_INT64: Final = 2**63 - 1
#: Kafka's limit on the length of topic names; the broker checks their characters.
_LONGEST_TOPIC: Final = 249


def mapping_of(name: str, given: object) -> Mapping[str, object]:
    """Return the settings of a consumer."""
    if isinstance(given, Mapping):
        return given
    raise ConfigException(
        f"{name}={shortly(given)} is not a mapping; give {{'bootstrap.servers': 'localhost:9092', 'group.id': ...}}"
    )


def function_of(what: str, name: str, given: object) -> None:
    """Check an optional callback."""
    if given is not None and not callable(given):
        raise ConfigException(f"{what}: {name}={shortly(given)} is not a function; give one, or None")


def topic_of(what: str, given: object) -> str:
    """Return the name of a topic, or a pattern that begins with ^."""
    if not isinstance(given, str) or not given:
        raise ConfigException(f"{what}: topic {shortly(given)} is not a topic name; give a non-empty string")
    problem = string_problem(given)
    if problem is None and len(given) > _LONGEST_TOPIC and not given.startswith("^"):
        problem = f"it has {len(given)} characters, but topic names have at most {_LONGEST_TOPIC}"
    if problem is not None:
        raise ConfigException(f"{what}: topic {shortly(given)}: {problem}")
    return given


def topics_of(what: str, given: object) -> list[str]:
    """Return topic names, given as a collection or as a single name."""
    if isinstance(given, str):
        return [topic_of(what, given)]
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ConfigException(
            f"{what}: {shortly(given)} is not a collection of topics; give ['name', ...], or a pattern of re.compile()"
        )
    return [topic_of(what, each) for each in given]


def partition_of(what: str, given: object) -> TopicPartition:
    """Return a partition, given as TopicPartition or as a plain pair of topic and number."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise ConfigException(f"{what}: {shortly(given)} is not a partition; give TopicPartition(topic, number)")
    topic, number = topic_of(what, given[0]), _integer(given[1], 0, _MOST_INT32)
    if number is None:
        raise ConfigException(
            f"{what}: partition number {shortly(given[1])} of {topic!r}: give an int from 0 to 2**31 - 1"
        )
    return given if isinstance(given, TopicPartition) and number is given[1] else TopicPartition(topic, number)


def partitions_of(what: str, given: object) -> list[TopicPartition]:
    """Return a collection of partitions."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigException(
            f"{what}: {shortly(given)} is not a collection of partitions; give [TopicPartition(topic, number)]"
        )
    return [partition_of(what, each) for each in given]


def offset_of(what: str, partition: TopicPartition, given: object) -> int:
    """Return an offset."""
    offset = _integer(given, 0, _MOST_INT64)
    if offset is None:
        raise ConfigException(f"{what}: offset {shortly(given)} of {partition}: give an int from 0 to 2**63 - 1")
    return offset


def _epoch_of(what: str, partition: TopicPartition, given: object) -> int:
    """Return a leader epoch, -1 if unknown."""
    epoch = _integer(given, -1, _MOST_INT32)
    if epoch is None:
        raise ConfigException(f"{what}: leader epoch {shortly(given)} of {partition}: give an int, or -1 if unknown")
    return epoch


def text_of(what: str, given: object, of: str = "") -> str:
    """Return a text that can be sent, such as a commit's metadata; ``of`` ends its name in messages."""
    problem = string_problem(given) if isinstance(given, str) else "give a string"
    if problem is not None:
        raise ConfigException(f"{what} {shortly(given)}{of}: {problem}")
    return str(given)


def timestamps_of(what: str, given: object) -> dict[TopicPartition, int]:
    """Return timestamps by partition, in milliseconds since 1970."""
    if not isinstance(given, Mapping):
        raise ConfigException(f"{what}: {shortly(given)}: give a mapping of TopicPartition to a timestamp")
    found = {}
    for key, value in given.items():
        partition, timestamp = partition_of(what, key), _integer(value, 0, _MOST_INT64)
        if timestamp is None:
            raise ConfigException(
                f"{what}: timestamp {shortly(value)} of {partition}: give milliseconds since 1970, an int from 0 on. "
                "For starts and ends there are beginning_offsets() and end_offsets()"
            )
        found[partition] = timestamp
    return found


def seconds_of(what: str, given: object) -> float:
    """Return a timeout in seconds; it may be infinite or negative."""
    try:
        seconds = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = float("nan")
    if isinstance(given, str | bytes) or seconds != seconds:  # noqa: PLR0124 - not a number
        raise ConfigException(f"{what}: timeout={shortly(given)} is not a number of seconds")
    return seconds


def at_least_one(name: str, given: object) -> None:
    """Check an optional limit."""
    if given is not None and _integer(given, 1) is None:
        raise ConfigException(f"{name}={shortly(given)} must be an int of at least 1, or None")


def _integer(given: Any, least: int, most: int | None = None) -> int | None:
    """Return an integer of any library as an int; None for booleans, other types and values out of range."""
    if type(given) is not int:
        try:
            given = None if isinstance(given, bool) else operator.index(given)
        except TypeError:
            return None
    return given if given is not None and least <= given and (most is None or given <= most) else None


OffsetsToCommit: TypeAlias = Mapping[TopicPartition, int | OffsetAndMetadata]


def wire_offsets(offsets: OffsetsToCommit) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets to commit by partition."""
    if not isinstance(offsets, Mapping):
        raise ConfigException(
            f"commit of {offsets!r}: give a mapping of TopicPartition to the offset of the next record to be read, or "
            "to OffsetAndMetadata(offset, text)"
        )
    found = {}
    for key, given in offsets.items():
        partition = partition_of("commit", key)
        value = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        found[partition] = OffsetAndMetadata(
            offset=offset_of("commit", partition, value.offset),
            leader_epoch=_epoch_of("commit", partition, value.leader_epoch),
            metadata=text_of("commit: metadata", value.metadata, f" of {partition}"),
        )
    return found
