"""What a table's rows add up to, which each transaction keeps: by it rows that are missing are found.

A checksum shows that a row is not what was written. It cannot show that a row is gone, or that one from before is back,
as when a page of LMDB's tree leads to another page. So the header has the count of each table's rows and the sum of
their checksums. A *scrub* reads the table some rows at a time, each time within a transaction that changes it anyway,
and compares what it has found with the sum once it is through. Changes to rows that it has passed are added to its part
as they are to the sum, so it needs no moment at which nothing changes, and goes on after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Change", "RunningSum"]

_64_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Change:
    """What a write has done to a table, by what it has put and what it has replaced.

    Attributes:
        rows: how many rows came, less those that went.
        total: what was added to the sum of all rows.
        passed: what was added to that of the keys which a scrub has passed.
    """

    rows: int = 0
    total: int = 0
    passed: int = 0


class RunningSum(NamedTuple):
    """A table's rows in numbers.

    Attributes:
        rows: how many there are by the writes, which LMDB's own count is compared with: taken from that, rows that were
            lost would be believed at the next write.
        total: sum of their checksums, 64 bits.
        scrubbed_to: last key that the scrub has passed; empty: it begins.
        scrubbed: sum of the checksums of the keys up to there.
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
        """Return the sum once a scrub has read some rows more, up to a key."""
        return self._replace(scrubbed_to=last, scrubbed=(self.scrubbed + sum_) & _64_BITS)

    def from_the_first(self) -> RunningSum:
        """Return the sum with a scrub that begins."""
        return self._replace(scrubbed_to=b"", scrubbed=0)
