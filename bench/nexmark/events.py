"""The events of an auction house: read from a file, or made by a seeded generator.

An event is a line of JSON: its ``type`` (person, auction or bid), its time ``at`` (milliseconds since 1970), and the
fields of its type. Apache Beam's generator writes such lines, in which bids have no ``channel`` and ``url``: these are
derived from the event's number, its place in the file (:func:`channel_and_url`), so one file has one answer.

The generator here has Nexmark's shape: of fifty events one is a person, three are auctions, and 46 are bids, half of
which go to a few hot auctions, bidders and sellers. Times are up to a second out of order, and a bid may be for an
auction that comes after it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["SCHEMAS", "Event", "channel_and_url", "generated", "parsed"]

#: What each type has beside its ``at``, as ``Json`` reads it. Times are milliseconds since 1970.
SCHEMAS: Final = {
    "person": "id long, name string, emailAddress string, creditCard string, city string, state string, "
    "dateTime long, extra string",
    "auction": "id long, itemName string, description string, initialBid long, reserve long, dateTime long, "
    "expires long, seller long, category long, extra string",
    "bid": "auction long, bidder long, price long, channel string, url string, dateTime long, extra string",
}
Event = dict[str, Any]

_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS: Final = 10_000
_WORDS: Final = ("amber", "birch", "cobalt", "delta", "ember", "flint", "grove", "hazel", "indigo", "jasper")

_OF_AN_EPOCH: Final = 50
_AUCTIONS: Final = 3
_FIRST_ID: Final = 1000
_FIRST_CATEGORY: Final = 10
_CATEGORIES: Final = 5
_OUT_OF_ORDER_MS: Final = 1000
_BEGINS_MS: Final = 1_735_722_000_000  # 2025-01-01, 9 o'clock UTC
_STATES: Final = {"OR": "Portland", "ID": "Boise", "CA": "San Francisco", "AZ": "Phoenix", "WA": "Seattle"}
_NAMES: Final = ("Ada", "Bela", "Cleo", "Dara", "Eino", "Fay", "Gus", "Hana")


def parsed(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of lines of JSON, with ``number``, ``dateTime`` and, for bids, ``channel`` and ``url``.

    Raises:
        ValueError: a line is no event; says which.
    """
    for number, line in enumerate(lines):
        try:
            event = json.loads(line)
            kind, at = event["type"], event["at"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number + 1} is no event, which has type and at: {error!r}") from error
        if kind not in SCHEMAS or not isinstance(at, int):
            raise ValueError(
                f"line {number + 1}: type={kind!r} must be one of {', '.join(SCHEMAS)}, at={at!r} a number"
            )
        event.setdefault("dateTime", at)
        event["number"] = number
        if kind == "bid" and not {"channel", "url"} <= event.keys():
            event["channel"], event["url"] = channel_and_url(number)
        yield event


def channel_and_url(number: int) -> tuple[str, str]:
    """Return the channel through which a bid came, and the page that it came from.

    Half of them come through one of four hot channels, each with a page of its own. The others come through one of
    ten thousand, and nine in ten of their pages say so (``channel_id``). Paths have three parts and a file.
    """
    chance = _mixed(number)
    if chance % 2:
        name = _HOT_CHANNELS[chance // 2 % len(_HOT_CHANNELS)]
        return name, f"https://www.nexmark.com/{name.lower()}/home/today/item.htm?query=1"
    channel = chance // 8 % _CHANNELS
    path = "/".join(_WORDS[chance >> shift & 7] for shift in (30, 36, 42))
    url = f"https://www.nexmark.com/{path}/item.htm?query=1"
    return f"channel-{channel}", url if (chance >> 50) % 10 == 0 else f"{url}&channel_id={channel}"


def generated(count: int, *, seed: int = 0, events_per_second: int = 100) -> Iterator[Event]:
    """Yield events of ours, the same ones for the same arguments.

    Args:
        count: how many.
        seed: of what chance decides.
        events_per_second: of event time.
    """
    random = np.random.default_rng(seed)
    for number in range(count):
        epoch, place = divmod(number, _OF_AN_EPOCH)
        # Who comes late comes at most a second late; the first event has the first time.
        late = int(random.integers(_OUT_OF_ORDER_MS)) if number and random.random() < 0.2 else 0
        at = _BEGINS_MS + max(number * 1000 // events_per_second - late, 0)
        chance = random.integers(1 << 30, size=8).tolist()
        extra = "".join(chr(ord("a") + (chance[7] >> shift) % 26) for shift in range(4 + chance[6] % 16))
        if place == 0:
            kind, fields = "person", _person(epoch, chance)
        elif place <= _AUCTIONS:
            kind, fields = "auction", _auction(_AUCTIONS * epoch + place - 1, epoch, at, chance)
        else:
            kind, fields = "bid", _bid(number, epoch, chance)
        yield {"type": kind, "at": at, "number": number, **fields, "dateTime": at, "extra": extra}


def _person(number: int, chance: list[int]) -> Event:
    state = list(_STATES)[chance[0] % len(_STATES)]
    name = f"{_NAMES[chance[1] % len(_NAMES)]} {_WORDS[chance[2] % len(_WORDS)].title()}"
    return {
        "id": _FIRST_ID + number,
        "name": name,
        "emailAddress": f"{name.replace(' ', '.').lower()}@example.org",
        "creditCard": " ".join(f"{part % 10_000:04}" for part in chance[:4]),
        "city": _STATES[state],
        "state": state,
    }


def _auction(number: int, people: int, at: int, chance: list[int]) -> Event:
    first = _price(chance[0])
    return {
        "id": _FIRST_ID + number,
        "itemName": f"{_WORDS[chance[1] % len(_WORDS)]} {_WORDS[chance[2] % len(_WORDS)]}",
        "description": f"number {number} of many",
        "initialBid": first,
        "reserve": first + _price(chance[3]),
        "expires": at + 1 + chance[4] % 20_000,
        "seller": _FIRST_ID + _one_of(people, chance[5], hot_every=4, recent=20),
        "category": _FIRST_CATEGORY + chance[6] % _CATEGORIES,
    }


def _bid(number: int, epoch: int, chance: list[int]) -> Event:
    channel, url = channel_and_url(number)
    return {
        # One more than there are: a bid may come before its auction.
        "auction": _FIRST_ID + _one_of(_AUCTIONS * (epoch + 1), chance[0], hot_every=10, recent=60),
        "bidder": _FIRST_ID + _one_of(epoch, chance[1], hot_every=4, recent=100),
        "price": _price(chance[2]),
        "channel": channel,
        "url": url,
    }


def _one_of(newest: int, chance: int, *, hot_every: int, recent: int) -> int:
    """Return a number up to ``newest``: half the time the last multiple of ``hot_every``, else a recent one."""
    if chance % 2:
        return newest // hot_every * hot_every
    return max(newest - chance // 2 % recent, 0)


def _price(chance: int) -> int:
    """Return a price in cents, from 1 to a million dollars, each order of magnitude as often."""
    return round(100 * 10 ** (6 * (chance % 100_003) / 100_003))


def _mixed(number: int) -> int:
    """Return 64 bits in which neighbours have nothing in common (the finalizer of splitmix64)."""
    mask = (1 << 64) - 1
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & mask
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    return mixed ^ mixed >> 31
