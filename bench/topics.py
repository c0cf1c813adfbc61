"""Topics of one run: made before, gone after, never the same twice."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from bench.workload import PARTITIONS
from sparkrelay.devkafka.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["APPLICATION_PREFIX", "run_topics"]

#: Application ids begin with it, and so the names of internal topics.
APPLICATION_PREFIX = "bench-"
_numbers = itertools.count(1)
_TIMEOUT_S = 60.0


@contextmanager
def run_topics(
    bootstrap_servers: str, *kinds: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None
) -> Iterator[tuple[str, ...]]:
    """Make a topic of each kind with a name that no run had before, and so no group has offsets or state of.

    At the end they are deleted, and the applications' internal topics with them: the broker has no work left from one
    run when the next begins.
    """
    number = next(_numbers)
    names = tuple(f"{kind}-{number}" for kind in kinds)
    for name in names:
        create_topic(bootstrap_servers, name, partitions=partitions, config=config)
    try:
        yield names
    finally:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
        internal = [
            name for name in admin.list_topics(timeout=_TIMEOUT_S).topics if name.startswith(APPLICATION_PREFIX)
        ]
        for deleted in admin.delete_topics([*names, *internal]).values():
            deleted.result(_TIMEOUT_S)
