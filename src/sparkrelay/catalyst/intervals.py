"""Intervals in Spark's syntax."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import get_field

from sparkrelay.catalyst.jvm import java

_INTERVALS = "org.apache.spark.sql.catalyst.util.IntervalUtils"
_A_DAY_US = 24 * 3_600 * 1_000_000
#: Parsed intervals, in us: pipelines have the same few.
_known: dict[str, int] = {}


def interval_us(text: str) -> int:
    """Return an interval in us, parsed like the delay of a watermark: a month has 31 days.

    Raises:
        PySparkException: it is none.
        ValueError: it is less than no time.
    """
    if text not in _known:
        intervals, unit = java(_INTERVALS), java("java.util.concurrent.TimeUnit").MICROSECONDS
        found = int(intervals.getDuration(intervals.fromIntervalString(text), unit, 31))
        if found < 0:
            raise ValueError(f"{text!r} is less than no time; give it without a minus")
        _known[text] = found
    return _known[text]


def literal_us(value: Any) -> int | None:
    """Return the value of an interval's literal in us, of the JVM's; None where its length varies, as of months."""
    if isinstance(value, int):
        return value
    months, days, us = (int(get_field(value, name)) for name in ("months", "days", "microseconds"))
    return None if months else days * _A_DAY_US + us
