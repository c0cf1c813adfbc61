"""The keys of a store that a stateful processor keeps its variables and timers in.

    timer     due, 00, group              -> the group's key
    expiry    due, 01, group, name, 00, rest  -> nothing
    variable  NEVER, group, name, 00, rest    -> when it expires, and its columns
    timers    NEVER, group, 00, due           -> nothing

Every key begins with an end, as in every store whose rows end (``state.watermarks``): a timer with when it is due,
and so what is due comes first. Variables end never. ``rest`` is a map's own key, or an element's place in a list; of a
value and of what is known of a list as a whole it is empty. A group and a map's key stand there with their length in
front, so that none is the beginning of another one, and a long one by its digest: all keys are short, and can be
scanned.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from sparkrelay.state.watermarks import END_BYTES, NEVER, end_bytes, end_of

__all__ = [
    "LONGEST_NAME",
    "TIMERS",
    "behind_front",
    "element_key",
    "entries",
    "entry_key",
    "expiry_key",
    "part",
    "place_of",
    "read_due",
    "timer_key",
    "variable_key",
    "variable_of",
]

#: Bytes of a variable's name.
LONGEST_NAME: Final = 100
#: Under this name, which no variable has, stand a group's timers, in their order.
TIMERS: Final = ""
_LONGEST_PART: Final = 120
_SECOND_MS: Final = 1000
_DIGEST: Final = b"\xff"
_FRONT: Final = end_bytes(NEVER)
_TIMER: Final = b"\x00"
_EXPIRY: Final = b"\x01"
_PLACE: Final = struct.Struct(">Q")


def part(key: bytes) -> bytes:
    """Return a key as it stands within others."""
    if len(key) > _LONGEST_PART:
        return _DIGEST + hashlib.sha256(key).digest()
    return bytes((len(key),)) + key


def variable_key(group: bytes, name: str) -> bytes:
    """Return where a variable of a group stands; ``group`` is what :func:`part` makes of its key."""
    return _FRONT + group + name.encode() + b"\x00"


def entry_key(variable: bytes, key: bytes) -> bytes:
    """Return where an entry of a map stands."""
    return variable + part(key)


def element_key(variable: bytes, place: int) -> bytes:
    """Return where an element of a list stands, or one of a group's timers."""
    return variable + _PLACE.pack(place)


def place_of(key: bytes) -> int:
    """Return an element's place, or when a timer of a group is due."""
    place: int = _PLACE.unpack_from(key, len(key) - _PLACE.size)[0]
    return place


def entries(variable: bytes) -> tuple[bytes, bytes]:
    """Return the bounds of a map's entries."""
    return variable, variable[:-1] + b"\x01"


def timer_key(due_ms: int, group: bytes) -> bytes:
    """Return where a timer stands."""
    return end_bytes(due_ms) + _TIMER + group


def expiry_key(expires_ms: int, variable: bytes) -> bytes:
    """Return where it stands that a variable, an entry or an element expires: it is removed within a second of that."""
    return end_bytes(-(-expires_ms // _SECOND_MS) * _SECOND_MS) + _EXPIRY + variable[END_BYTES:]


def read_due(key: bytes) -> tuple[int, bool]:
    """Return when something is due, in milliseconds since 1970, and whether it is a timer."""
    return end_of(key), key[END_BYTES : END_BYTES + 1] == _TIMER


def behind_front(key: bytes) -> bytes:
    """Return the group of a timer's key, as :func:`part` has made it."""
    return key[END_BYTES + 1 :]


def variable_of(expiry: bytes) -> bytes:
    """Return what it is that expires."""
    return _FRONT + expiry[END_BYTES + 1 :]
