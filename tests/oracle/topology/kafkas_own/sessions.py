"""Cases of Kafka Streams' tests of session windows, each with all results and with final ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from tests.oracle.topology.kafkas_own.builders import Json, case, record, stream, to

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["sessions"]

#: Of KStreamSessionWindowAggregateProcessorTest.
GAP_MS: Final = 300_000
_HALF, _SECOND, _THIRD = GAP_MS // 2, GAP_MS + 1, GAP_MS + 1 + GAP_MS // 2
#: Name -> gap, grace, and records by key and time.
_SESSIONS: dict[str, tuple[int, int, list[tuple[str | None, int]]]] = {
    "KStreamSessionWindowAggregateProcessorTest.shouldCreateSingleSessionWhenWithinGap": (
        *(GAP_MS, 0),
        [("john", 0), ("john", 500)],
    ),
    # With a grace: there a session that is over goes on as long as its store has it.
    "KStreamSessionWindowAggregateProcessorTest.shouldMergeSessions": (
        *(GAP_MS, GAP_MS),
        [("mel", 0), ("mel", _SECOND), ("mel", _HALF)],
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldUpdateSessionIfTheSameTime": (GAP_MS, 0, [("mel", 0)] * 2),
    "KStreamSessionWindowAggregateProcessorTest.shouldHaveMultipleSessionsForSameIdWhenTimestampApartBySessionGap": (
        *(GAP_MS, 0),
        [("mel", 0), *[("mel", _SECOND)] * 2, *[("mel", 2 * _SECOND)] * 3],
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldRemoveMergedSessionsFromStateStore": (
        *(GAP_MS, 0),
        [("a", 0), ("a", 100)],
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldHandleMultipleSessionsAndMerging": (
        *(GAP_MS, 0),
        [
            *((key, 0) for key in "abcd"),
            *(("d", _HALF), ("a", _SECOND), ("b", _SECOND), ("a", _THIRD), ("c", _THIRD)),
        ],
    ),
    # With a grace: both are open.
    "KStreamSessionWindowAggregateProcessorTest.shouldGetAggregatedValuesFromValueGetter": (
        *(GAP_MS, 1),
        [("a", 0), ("a", _SECOND), ("a", _SECOND)],
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldImmediatelyForwardNewSessionWhenNonCachedStore": (
        *(GAP_MS, 0),
        [(key, 0) for key in "abc"],
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldImmediatelyForwardRemovedSessionsWhenMerging": (
        *(GAP_MS, 0),
        [("a", 0), ("a", 5)],
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldLogAndMeterWhenSkippingNullKeyWithBuiltInMetrics": (
        *(GAP_MS, 0),
        [(None, 0), ("a", 0), (None, 10 * GAP_MS)],
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldLogAndMeterWhenSkippingLateRecordWithZeroGrace": (
        *(10, 0),
        [("dummy", 0), ("on time", 0), ("dummy", 11), ("late", 0)],
    ),
    "KStreamSessionWindowAggregateProcessorTest.shouldLogAndMeterWhenSkippingLateRecordWithNonzeroGrace": (
        *(10, 1),
        [("dummy", 0), ("on time", 0), ("dummy", 11), ("on time too", 0), ("dummy", 12), ("late", 0)],
    ),
    "SessionWindowedKStreamImplTest.shouldMaterializeCount": (
        *(500, 0),
        [("1", 10), ("1", 15), ("1", 600), ("2", 600), ("2", 599)],
    ),
    "SuppressScenarioTest.shouldSupportFinalResultsForSessionWindows": (
        *(5, 0),
        [("k1", 0), ("k1", 5), ("k1", 1), ("k2", 11), ("k1", 5), ("k1", 30)],
    ),
}
#: Where a session stays what it is, but for its count: there it is deleted in between.
_REPLACED = ("shouldUpdateSessionIfTheSameTime", "ApartBySessionGap", "FromValueGetter", "ForSessionWindows")


def sessions() -> Iterator[Json]:
    """Return cases of sessions."""
    for (name, (gap, grace, records)), final in itertools.product(_SESSIONS.items(), (False, True)):
        counts = {"op": "aggregate", "of": 0, "by": "key", "aggs": [["count"]], "store": "counts"}
        yield case(
            f"{name}{' final' * final}",
            [stream("in"), counts | {"gap": gap, "grace": grace, "final": final}, to(1)],
            [record("in", key, {"a": 1}, at) for key, at in records],
            exact=final or not name.endswith(_REPLACED),
        )
