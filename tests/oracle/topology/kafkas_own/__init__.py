"""What Kafka Streams' own tests pipe in, as cases of ``specs.py``; ``record.py --kafkas-own`` records the answers.

A case has the name of the test, without its package, and after it what varies. Texts and numbers of the tests are
fields here and keys are texts, but who is equal, who is null, who comes when and at which time is as there.
tests/integration/testing/INVENTORY.md has which test is where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.topology.kafkas_own.sessions import sessions
from tests.oracle.topology.kafkas_own.streams import streams_with_streams, streams_with_tables
from tests.oracle.topology.kafkas_own.tables import (
    by_foreign_keys,
    tables_alone,
    tables_with_histories,
    tables_with_tables,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.topology.kafkas_own.builders import Json

__all__ = ["cases"]


def cases() -> Iterator[Json]:
    """Return all cases, without their answers."""
    yield from sessions()
    yield from tables_alone()
    yield from streams_with_tables()
    yield from tables_with_tables()
    yield from tables_with_histories()
    yield from by_foreign_keys()
    yield from streams_with_streams()
