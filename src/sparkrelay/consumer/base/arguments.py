"""What the application gives, checked before anything happens with it.

What is wrong with an argument must be said by the call that it was given to: further on it would be found by the
network thread, which has nobody to report to, or by the encoder of a request, or never.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sparkrelay.errors import ConfigException
from sparkrelay.settings import shortly, string_problem
from sparkrelay.types import TopicPartition

__all__ = [
    "at_least_one",
    "epoch_of",
    "function_of",
    "mapping_of",
    "offset_of",
    "partition_of",
    "partitions_of",
    "reason_of",
    "seconds_of",
    "text_of",
    "timestamps_of",
    "topic_of",
    "topics_of",
]

_MOST_INT32: Final = 2**31 - 1
_MOST_INT64: Final = 2**63 - 1
#: Kafka takes no longer names of topics; which characters they may have is left to the broker.
_LONGEST_TOPIC: Final = 249


def mapping_of(name: str, given: object) -> Mapping[str, object]:
    """Return the settings of a consumer.

    Raises:
        ConfigException: they are no mapping.
    """
    if isinstance(given, Mapping):
        return given
    raise ConfigException(
        f"{name}={shortly(given)} is no mapping; give {{'bootstrap.servers': 'localhost:9092', 'group.id': ...}}"
    )


def function_of(what: str, name: str, given: object) -> None:
    """Check a callback; None is none.

    Raises:
        ConfigException: it cannot be called.
    """
    if given is not None and not callable(given):
        raise ConfigException(f"{what}: {name}={shortly(given)} is no function; give one, or None")


def reason_of(what: str, given: object) -> str:
    """Return a reason for the broker's log.

    Raises:
        ConfigException: it is no text, or cannot be sent.
    """
    if isinstance(given, str):
        if (problem := string_problem(given)) is None:
            return given
        raise ConfigException(f"{what}: reason {shortly(given)}: {problem}")
    raise ConfigException(f"{what}: reason {shortly(given)}: give a string")


def topic_of(what: str, given: object) -> str:
    """Return the name of a topic.

    Args:
        what: the call, for messages.
        given: what the application gave.

    Raises:
        ConfigException: it is not one that could be sent to a broker.
    """
    if not isinstance(given, str) or not given:
        raise ConfigException(f"{what}: topic {shortly(given)} is no name of a topic; give a string that is not empty")
    problem = string_problem(given)
    if problem is None and len(given) > _LONGEST_TOPIC and not given.startswith("^"):
        problem = f"it has {len(given)} characters, and names of topics have at most {_LONGEST_TOPIC}"
    if problem is not None:
        raise ConfigException(f"{what}: topic {shortly(given)}: {problem}")
    return given


def topics_of(what: str, given: object) -> list[str]:
    """Return names of topics; a single one may be given as it is.

    Raises:
        ConfigException: one of them is none, or it is no collection.
    """
    if isinstance(given, str):
        return [topic_of(what, given)]
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ConfigException(
            f"{what}: {shortly(given)} is no collection of topics; give ['name', ...], or a pattern of re.compile()"
        )
    return [topic_of(what, each) for each in given]


def partition_of(what: str, given: object) -> TopicPartition:
    """Return a partition; a plain pair of topic and number is one too.

    Raises:
        ConfigException: it is none.
    """
    if not isinstance(given, tuple) or len(given) != 2:
        raise ConfigException(f"{what}: {shortly(given)} is no partition; give TopicPartition(topic, number)")
    topic, number = topic_of(what, given[0]), _integer(given[1])
    if number is None or not 0 <= number <= _MOST_INT32:
        raise ConfigException(
            f"{what}: partition number {shortly(given[1])} of {topic!r}: give an int from 0 to 2**31 - 1"
        )
    return given if isinstance(given, TopicPartition) and number is given[1] else TopicPartition(topic, number)


def partitions_of(what: str, given: object) -> list[TopicPartition]:
    """Return partitions.

    Raises:
        ConfigException: one of them is none, or it is no collection.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigException(
            f"{what}: {shortly(given)} is no collection of partitions; give [TopicPartition(topic, number)]"
        )
    return [partition_of(what, each) for each in given]


def offset_of(what: str, partition: TopicPartition, given: object) -> int:
    """Return an offset.

    Raises:
        ConfigException: it is none.
    """
    offset = _integer(given)
    if offset is None or not 0 <= offset <= _MOST_INT64:
        raise ConfigException(f"{what}: offset {shortly(given)} of {partition}: give an int from 0 to 2**63 - 1")
    return offset


def epoch_of(what: str, partition: TopicPartition, given: object) -> int:
    """Return a leader epoch, -1 if it is not known.

    Raises:
        ConfigException: it is none.
    """
    epoch = _integer(given)
    if epoch is None or not -1 <= epoch <= _MOST_INT32:
        raise ConfigException(
            f"{what}: leader epoch {shortly(given)} of {partition}: give an int, or -1 if it is not known"
        )
    return epoch


def text_of(what: str, partition: TopicPartition, given: object) -> str:
    """Return the metadata of a commit.

    Raises:
        ConfigException: it is no text.
    """
    problem = string_problem(given) if isinstance(given, str) else "give a string"
    if problem is None:
        return str(given)
    raise ConfigException(f"{what}: metadata {shortly(given)} of {partition}: {problem}")


def timestamps_of(what: str, given: object) -> dict[TopicPartition, int]:
    """Return timestamps by partition, in milliseconds since 1970.

    Raises:
        ConfigException: one of them is none.
    """
    if not isinstance(given, Mapping):
        raise ConfigException(f"{what}: {shortly(given)}: give a mapping of TopicPartition to a timestamp")
    found = {}
    for key, value in given.items():
        partition, timestamp = partition_of(what, key), _integer(value)
        if timestamp is None or not 0 <= timestamp <= _MOST_INT64:
            raise ConfigException(
                f"{what}: timestamp {shortly(value)} of {partition}: give milliseconds since 1970, an int from 0 on. "
                "For starts and ends there are beginning_offsets() and end_offsets()"
            )
        found[partition] = timestamp
    return found


def seconds_of(what: str, given: object) -> float:
    """Return a time in seconds; it may be infinite or, which is none at all, negative.

    Raises:
        ConfigException: it is no number.
    """
    try:
        seconds = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = float("nan")
    if isinstance(given, str | bytes) or seconds != seconds:  # noqa: PLR0124 - not a number
        raise ConfigException(f"{what}: timeout={shortly(given)} is no number of seconds")
    return seconds


def at_least_one(name: str, given: object) -> None:
    """Check a limit; None is none.

    Raises:
        ConfigException: it would let nothing through, or it is no integer.
    """
    if given is None:
        return
    limit = _integer(given)
    if limit is None or limit < 1:
        raise ConfigException(f"{name}={shortly(given)} must be an int of at least 1, or None")


def _integer(given: Any) -> int | None:
    """Return an integer of any library as Python's own; None for everything else, truth values among it."""
    if type(given) is int:
        return given
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None
