"""``auto.offset.reset``: where to start without a position. See KIP-1106 for ``by_duration``."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from sparkrelay.errors import ConfigException

__all__ = ["timestamp_of"]

_POLICIES: Final = MappingProxyType({"earliest": -2, "latest": -1, "none": None})
#: Names in librdkafka and in old clients.
_ELSEWHERE: Final = MappingProxyType(
    {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}
)
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)


def timestamp_of(policy: str) -> int | None:
    """Return a policy for ListOffsets: -2 start, -1 end, or milliseconds since 1970; None for ``none``.

    Raises:
        ConfigException: the policy is invalid.
    """
    if policy.startswith(_BY_DURATION):
        return max(0, int((time.time() - _seconds(policy)) * 1000))
    if policy not in _POLICIES:
        lower = policy.lower()
        meant = lower if lower in _POLICIES else _ELSEWHERE.get(lower)
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise ConfigException(
            f"auto.offset.reset={policy!r} must be {', '.join(_POLICIES)} or {_BY_DURATION}<ISO 8601 duration>{hint}"
        )
    return _POLICIES[policy]


def _seconds(policy: str) -> float:
    found = _DURATION.fullmatch(policy.removeprefix(_BY_DURATION))
    try:
        if found is not None:
            parts = {unit: float(number) for unit, number in found.groupdict().items() if number}
            return timedelta(**parts).total_seconds()
    except OverflowError:
        pass
    raise ConfigException(
        f"auto.offset.reset={policy!r} is not a duration of days, hours, minutes and seconds, such as "
        "by_duration:PT1H30M or by_duration:P7D"
    )
