"""A task's ticks: a call for all of its groups, once an interval.

Ticks are due at multiples of the interval, by the clock of the step's ``timeMode``; missed ones are one. The keys of
the groups are kept as entries of their own, as long ones are digests elsewhere.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from sparkrelay.operators.process.keys import GROUPS, NEXT_TICK, entries, entry_key, of_group, tick_key
from sparkrelay.operators.process.variables import Group

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.operators.process.variables import Work

_TIME: Final = struct.Struct(">q")


class Ticks:
    """The ticks of one task in one micro-batch.

    Args:
        work: the micro-batch's state.
        every_ms: the interval, in ms.
    """

    def __init__(self, work: Work, every_ms: int) -> None:
        self._work = work
        self._every_ms = every_ms
        #: Encoded keys of the groups that had rows in this micro-batch.
        self._seen: dict[bytes, Group] = {}

    def note(self, groups: Iterable[Group]) -> None:
        """Remember groups that have rows, so that later ticks know of them."""
        places = {entry_key(GROUPS, group.key): group for group in groups}
        known = self._work.get(places)
        self._seen |= {group.key: group for group in places.values()}
        self._work.changed |= {place: group.key for place, group in places.items() if place not in known}

    def take_due(self, now_ms: int) -> int | None:
        """Return the tick that is due, in ms since 1970, or None; and file the next one."""
        stored = self._work.get([NEXT_TICK]).get(NEXT_TICK)
        due: int | None = None if stored is None else _TIME.unpack(stored)[0]
        if due is not None and due > now_ms:
            return None
        then = (now_ms // self._every_ms + 1) * self._every_ms
        if due is not None:
            self._work.changed[tick_key(due)] = None
        self._work.changed[tick_key(then)] = b""
        self._work.changed[NEXT_TICK] = _TIME.pack(then)
        return due

    def groups(self) -> list[Group]:
        """Return the groups that have variables or timers, or had rows just now; others are forgotten."""
        first, stop = entries(GROUPS)
        _, places, keys = self._work.view.ranges([first], [stop])
        found = dict(self._seen)
        for place, key in zip(places.to_pylist(), keys.to_pylist(), strict=True):
            group = Group.of(key)
            if key in found:
                continue
            if self._work.view.between(*of_group(group.part), 1).num_rows:
                found[key] = group
            else:
                self._work.changed[place] = None
        return [found[key] for key in sorted(found)]
