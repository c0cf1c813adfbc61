"""The difference between a store's contents and those of a changed pipeline, in words.

A store's contents are described by one long text (``runtime.compile.grouping.contents``). Users would not see where two
such texts differ, so the usual differences are named: other windows, an added or removed watermark, changelog or
history, and another key of the input.
"""

from __future__ import annotations

import re
from typing import Final

from sparkrelay.state.batch import SPREAD_BY

_TIME: Final = r"(?:\d+ days?, )?\d+:\d\d:\d\d(?:\.\d+)?"
_WINDOW: Final = re.compile(
    rf"= window\((?P<column>.*?), (?P<length>{_TIME})(?: every (?P<every>{_TIME}))?(?: from (?P<offset>{_TIME}))?\)"
)
_SESSION: Final = re.compile(r"= session_window\((?P<column>.*?), '?(?P<gap>[^()]*?)'?\)")
#: Of overlapping windows, which may be null.
_NULL_WINDOW: Final = re.compile(r"(window struct<start:\w+,end:\w+>) or null")
_ENDS: Final = re.compile(r", over with [^,]*(?=, |$)")
_HISTORY: Final = re.compile(r", and of those in the (?P<ms>\d+) ms before")
_UNLOGGED: Final = ", without changelog"
_UNITS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"), (1, "millisecond"))


def changed_contents(held: str, wanted: str) -> str:
    """Return the predicate of a sentence about a store whose contents differ from the pipeline's."""
    windows = _windows(held), _windows(wanted)
    if None not in windows and windows[0] != windows[1] and _without_windows(held) == _without_windows(wanted):
        return f"was made with {windows[0]}; the pipeline now has {windows[1]}"
    for pattern, with_it, without_it in (
        (_ENDS, "windows that end, by withWatermark()", "windows that never end, without withWatermark()"),
        (re.compile(_UNLOGGED), "no changelog, by logged=False", "a changelog"),
        (_HISTORY, "a history", "no history"),
    ):
        if pattern.sub("", held) == pattern.sub("", wanted):
            had, has = (with_it if pattern.search(text) else without_it for text in (held, wanted))
            if had != has:
                return f"was made with {had}; the pipeline now has {has}"
    if (before := _HISTORY.search(held)) and (now := _HISTORY.search(wanted)) and _same(_HISTORY, held, wanted):
        lengths = (_words(int(found["ms"])) for found in (before, now))
        return "was made with a history of {}; the pipeline now has one of {}".format(*lengths)
    spread, now_spread = held.rpartition(SPREAD_BY), wanted.rpartition(SPREAD_BY)
    if spread[1] and now_spread[1] and spread[0] == now_spread[0]:
        return f"has its rows partitioned by {spread[2]}; the pipeline now partitions them by {now_spread[2]}"
    return f"holds {held}, but the pipeline now wants {wanted}"


def _same(pattern: re.Pattern[str], held: str, wanted: str) -> bool:
    return pattern.sub("", held) == pattern.sub("", wanted)


def _windows(text: str) -> str | None:
    """Describe the windows of a store, ``10-minute windows``; return None if it has none."""
    if (session := _SESSION.search(text)) is not None:
        return f"sessions that end after {session['gap']}"
    if (window := _WINDOW.search(text)) is None:
        return None
    length = _words(_milliseconds(window["length"])).replace(" ", "-").removesuffix("s")
    every = "" if window["every"] is None else f" every {_words(_milliseconds(window['every']))}"
    offset = "" if window["offset"] is None else f" from {_words(_milliseconds(window['offset']))} on"
    return f"{length} windows{every}{offset}"


def _without_windows(text: str) -> str:
    replaced = _SESSION.sub(r"= windows(\g<column>)", _WINDOW.sub(r"= windows(\g<column>)", text))
    return _NULL_WINDOW.sub(r"\1", replaced)


def _milliseconds(text: str) -> float:
    days, _, time = text.rpartition(", ")
    hours, minutes, seconds = time.split(":")
    whole = int(days.split()[0]) if days else 0
    return ((whole * 24 + int(hours)) * 60 + int(minutes)) * 60_000 + float(seconds) * 1_000


def _words(ms: float) -> str:
    """Return a duration in the largest unit that divides it, ``90 minutes``."""
    size, unit = next(((size, unit) for size, unit in _UNITS if ms % size == 0), (1, "millisecond"))
    count = ms / size
    return f"{count:g} {unit}{'' if count == 1 else 's'}"
