"""Names of stores, internal topics and legs: stable, settable, legal in Kafka.

State on disk and in changelogs is found by name, so a name must not change because another step was added somewhere.
Kafka Streams counts all nodes of a topology, and one new ``filter`` renames every store behind it (KIP-307 and KIP-372
let users name them by hand). Ours say what the step does, ``flights-by-carrier-window``; only the second step that
says the same gets a number.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import TopologyException

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.topology.call_site import CallSite

#: Kafka allows 249 characters in a topic's name; the rest is for the application id and a suffix.
MAX_NAME: Final = 200
_MAX_TOPIC: Final = 249
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9._-]+")


def check_topic(topic: object, call_site: CallSite) -> str:
    """Return ``topic`` if Kafka takes it as a topic's name.

    Raises:
        TopologyException: it does not; names the line.
    """
    if not isinstance(topic, str):
        raise TopologyException(f"{call_site}: a topic's name is a string, not {topic!r}")
    if not topic.strip():
        raise TopologyException(f"{call_site}: the topic's name is empty; name the topic")
    if _ILLEGAL.search(topic) or topic in {".", ".."} or len(topic) > _MAX_TOPIC:
        raise TopologyException(
            f"{call_site}: {topic!r} cannot be a topic: Kafka allows letters, digits, '.', '_' and '-', at most "
            f"{_MAX_TOPIC} of them (patterns are not supported; list the topics)"
        )
    return topic


def check_name(name: object, call_site: CallSite) -> str | None:
    """Return ``name`` if a topic's name can be made from it; None stays None.

    Raises:
        TopologyException: it cannot; names the line.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise TopologyException(f"{call_site}: name= takes a string, not {name!r}")
    if not name or _ILLEGAL.search(name) or name in {".", ".."} or len(name) > MAX_NAME:
        raise TopologyException(
            f"{call_site}: name={name!r} becomes part of a topic's name: use letters, digits, '.', '_' and '-', 1 to "
            f"{MAX_NAME} of them"
        )
    return name


def speaking_name(parts: Iterable[str]) -> str:
    """Join ``parts`` to a legal name; a long one keeps its beginning and gets a digest for the rest."""
    words = (_ILLEGAL.sub("-", part).strip("-.") for part in parts)
    name = "-".join(word for word in words if word) or "step"
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}-{digest}"


class NameRegister:
    """Names of one kind: those that the user chose, then those that we find."""

    def __init__(self, kind: str) -> None:
        """Take what the names are of, for messages."""
        self._kind = kind
        self._owners: dict[str, CallSite] = {}
        self._chosen: set[str] = set()

    def choose(self, name: str, call_site: CallSite) -> str:
        """Register a name that the user wrote.

        Raises:
            TopologyException: it is taken; names both lines.
        """
        if name in self._owners:
            raise TopologyException(
                f"{call_site}: the {self._kind} name {name!r} is taken by {self._owners[name]}; choose another name="
            )
        self._owners[name] = call_site
        self._chosen.add(name)
        return name

    def find(self, name: str, call_site: CallSite) -> str:
        """Register a name of ours; the second of the same name gets ``-2``.

        Raises:
            TopologyException: the user gave it to something else. Evading it would rename state that may exist.
        """
        candidate, number = name, 1
        while candidate in self._owners:
            if candidate in self._chosen:
                raise TopologyException(
                    f"{call_site}: the {self._kind} made here is called {candidate!r}, but {self._owners[candidate]} "
                    "gives that name to another; choose a name= for one of them"
                )
            number += 1
            suffix = f"-{number}"
            candidate = name[: MAX_NAME - len(suffix)] + suffix
        self._owners[candidate] = call_site
        return candidate
