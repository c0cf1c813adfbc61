"""The running sum of a table's rows, updated in each transaction, which detects missing rows.

A row's checksum cannot show that a row is missing or has reverted, as when a page of LMDB's tree points to a wrong
page. So the header has each table's row count and the sum of its checksums. A *scrub* reads the table some rows at a
time, within transactions that change it anyway, and compares its own sum at the end. Changes to rows that it has passed
are added to both sums, so it runs alongside changes, and continues after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_64_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a write: on the row count, on the sum of all rows, and on that of rows that a scrub has passed."""

    rows: int = 0
    total: int = 0
    passed: int = 0


class RunningSum(NamedTuple):
    """A table's sums.

    Attributes:
        rows: the row count by the writes, to be compared with LMDB's own count.
        total: sum of the checksums, 64 bits.
        scrubbed_to: last key that the scrub has passed; empty at its start.
        scrubbed: sum of the checksums up to there.
    """

    rows: int = 0
    total: int = 0
    scrubbed_to: bytes = b""
    scrubbed: int = 0

    def changed(self, change: Change) -> RunningSum:
        """Return the sum after a write."""
        return self._replace(
            rows=self.rows + change.rows,
            total=(self.total + change.total) & _64_BITS,
            scrubbed=(self.scrubbed + change.passed) & _64_BITS,
        )

    def passed(self, last: bytes, sum_: int) -> RunningSum:
        """Return the sum after a scrub has read more rows, up to a key."""
        return self._replace(scrubbed_to=last, scrubbed=(self.scrubbed + sum_) & _64_BITS)

    def from_the_first(self) -> RunningSum:
        """Return the sum with a new scrub."""
        return self._replace(scrubbed_to=b"", scrubbed=0)
