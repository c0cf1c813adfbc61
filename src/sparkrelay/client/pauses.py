"""How long to wait after a failure: twice as long after each, up to a bound, and never all at the same time (KIP-580).

One formula for requests that are repeated (``retry.backoff.ms``) and for connections that are made again
(``reconnect.backoff.ms``).
"""

from __future__ import annotations

import random
from typing import Final

__all__ = ["JITTER", "pause_after"]

#: Pauses vary by this share both ways, as with Kafka's own clients.
JITTER: Final = 0.2
#: 2 to the power of more is no number of seconds that anybody waits.
_MOST_DOUBLINGS: Final = 16


def pause_after(failures: int, first: float, longest: float, *, jitter: float = JITTER) -> float:
    """Return the pause after a failure, in the unit of ``first`` and ``longest``.

    Args:
        failures: how many there were in a row before this one.
        first: pause after the first failure.
        longest: bound on pauses, before they vary.
        jitter: pauses vary by this share both ways.
    """
    doubled: float = first * 2 ** min(failures, _MOST_DOUBLINGS)
    return min(longest, doubled) * random.uniform(1 - jitter, 1 + jitter)
