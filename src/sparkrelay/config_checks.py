"""Checks of single values of an instance's settings. Each raises ValueError for a value that is not valid."""

from __future__ import annotations

import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.settings import host_and_port
from sparkrelay.types import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

#: Kafka's limits, which keep subscriptions small (KIP-708).
MOST_TAGS: Final = 5
_LONGEST_TAG_KEY, _LONGEST_TAG_VALUE = 20, 30
_APPLICATION_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
#: Value of ``topology.optimization``: a table's source topic is also its changelog.
REUSE_SOURCE_TOPICS: Final = "reuse.ktable.source.topics"
#: Kafka Streams' other values.
_OTHER_OPTIMIZATIONS: Final = {
    "merge.repartition.topics": "one repartition(...) used several times is one topic",
    "single.store.self.join": "both sides of a join keep one store",
}
#: How a schema registry names a schema.
SUBJECT_NAME_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")


def _check(holds: Callable[[Any], bool], remedy: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if not holds(value):
            raise ValueError(remedy)

    return check


not_empty = _check(bool, "it must not be empty; leave it out for the default")
topic_name = _check(is_topic_name, "a topic name has 1 to 249 letters, digits, '.', '_' or '-'")
user_info = _check(lambda value: ":" in value and value.isascii() and value.isprintable(), "give USER:PASSWORD")
replication_factor = _check(bool, "give 1 or more, or -1 for the broker's default")
token = _check(
    lambda value: value.isascii() and value.isprintable() and " " not in value,
    "it is sent in an HTTP header: use ASCII letters, digits and punctuation, without spaces",
)
#: Java's clients name classes, such as io.confluent.kafka.serializers.subject.RecordNameStrategy.
strategy = _check(
    lambda value: value.rpartition(".")[2] in SUBJECT_NAME_STRATEGIES,
    f"use one of {', '.join(SUBJECT_NAME_STRATEGIES)}",
)


def check_application_id(value: str) -> None:
    """Check an ``application.id``."""
    if not _APPLICATION_ID.fullmatch(value) or value in {".", ".."}:
        raise ValueError("use 1 to 200 letters, digits, '.', '_' or '-': it becomes part of topic and directory names")


def check_client_tags(tags: Mapping[str, object]) -> None:
    """Check tags by the limits of KIP-708."""
    tag_names(tags)
    for key, text in tags.items():
        if not isinstance(text, str):
            raise ValueError(f"client.tag.{key}={text!r} is not a valid string")  # noqa: TRY004 - a setting's value
        if key.startswith("sparkrelay."):
            raise ValueError(f"tags sparkrelay.* are SparkRelay's own; rename {key!r}")
        if len(key) > _LONGEST_TAG_KEY or len(text) > _LONGEST_TAG_VALUE:
            raise ValueError(
                f"tag {key!r}={text!r} is too long: a key has at most {_LONGEST_TAG_KEY} characters, a value "
                f"{_LONGEST_TAG_VALUE}"
            )


def tag_names(names: Collection[str]) -> None:
    """Check the number of tags."""
    if len(names) > MOST_TAGS:
        raise ValueError(f"at most {MOST_TAGS} tags are allowed")


def servers(value: str) -> None:
    """Check ``HOST:PORT[,...]``."""
    for server in value.split(","):
        host_and_port(server.strip())


def path(value: str) -> None:
    """Check a path."""
    not_empty(value)
    if "\0" in value:
        raise ValueError("no path has a zero byte")


def registry(value: str) -> None:
    """Check the URLs of a schema registry."""
    for url in value.split(","):
        parts = urllib.parse.urlsplit(url.strip())
        if not all(" " < sign < "\x7f" for sign in url.strip()):
            raise ValueError("give http://HOST:PORT, or https://, in ASCII and without spaces")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("give http://HOST:PORT, or https://")
        if parts.username or parts.password:
            raise ValueError("credentials in it would be shown; set basic.auth.user.info instead")
        try:
            has_port = parts.port != 0
        except ValueError:
            has_port = False
        if not has_port:
            raise ValueError("give http://HOST:PORT, or https://, with a port of 1 to 65535")


def optimization(value: str) -> None:
    """Check ``topology.optimization``."""
    known = ("none", "all", REUSE_SOURCE_TOPICS)
    if value in known:
        return
    words = [
        f"{name} is not needed here, as {_OTHER_OPTIMIZATIONS[name]}"
        for name in map(str.strip, value.split(","))
        if name in _OTHER_OPTIMIZATIONS
    ]
    raise ValueError("; ".join([*words, f"use one of {', '.join(known)}"]))
