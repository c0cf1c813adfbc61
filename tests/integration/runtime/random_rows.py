"""Random rows: keys, and JSON values of random columns, with the bytes that are produced and the DataFrame they are."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkrelay import Integer, Long, Raw, String

if TYPE_CHECKING:
    import random


#: Types by column. Doubles in `x` and numbers in `m` can be added up; those in `d` and `l` are as extreme as they get.
TYPES = {
    "s": "string",
    "u": "string",
    "t": "tinyint",
    "h": "smallint",
    "i": "int",
    "l": "bigint",
    "m": "bigint",
    "f": "float",
    "d": "double",
    "x": "double",
    "b": "boolean",
    "day": "date",
    "at": "timestamp",
    "loc": "timestamp_ntz",
    "dec": "decimal(12,3)",
    "big": "decimal(38,10)",
    "bin": "binary",
    "p": "struct<c:string,n:int>",
    "w": "struct<d:double,day:date>",
    "tags": "array<string>",
    "props": "map<string,int>",
    "deep": "array<struct<a:array<bigint>,m:map<string,date>>>",
}
NESTED = ("p", "w", "tags", "props", "deep")
SUMMED = ("t", "h", "i", "m", "x")
AVERAGED = (*SUMMED, "l")
#: The column of event times, in the past and now and then before 1970, in those rounds that have it.
EVENT = "event"
#: Where a DataFrame has what is a record's timestamp in a stream.
TIME = "_time"
KEYS = {"string": String, "binary": Raw, "int": Integer, "bigint": Long}

_TEXTS = (
    "",
    "a",
    "A",
    "b",
    "aa",
    " a ",
    "ä",
    "日本",
    "\U0001f680",
    "\x00",
    'q"\\/',
    "tab\t\n",
    "null",
    "NaN",
    "0",
    "é",
)
_DOUBLES = (0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, -1e-9, 0.1, 1e22, 123456789.125)
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC).replace(tzinfo=None)
#: Where clocks were put forward or back: Berlin, New York, and once Kathmandu.
_CLOCK_CHANGES = (1_698_541_200, 1_711_846_800, 1_699_164_000, 1_710_054_000, 504_901_800)
_TIMES = (-62135596800, -2208988801, -86400, -1, 0, 1, 951782400, 1_700_000_000, 4102444800, 253402300799)


def _int(r: random.Random, bits: int) -> int:
    top = 1 << (bits - 1)
    return r.choice([0, 1, -1, r.randrange(-9, 10), r.randrange(-9, 10), top - 1, -top, r.randrange(-top, top)])


def _seconds(r: random.Random) -> int:
    recent = 1_700_000_000 + r.randrange(7200)
    return r.choice([r.choice(_TIMES), recent, recent, r.choice(_CLOCK_CHANGES) + r.randrange(-7200, 7200)])


def _moment(r: random.Random) -> str:
    """Return a time as one of the texts that ISO-8601 allows, without its zone."""
    at = _EPOCH + dt.timedelta(seconds=_seconds(r))
    text = at.isoformat(sep=r.choice("T "))
    return text + r.choice(["", "", ".5", ".123", ".123456", ".000001"])


def _event_time(r: random.Random, kind: str) -> tuple[Any, int | None]:
    """Return what stands in JSON for an event time, and its milliseconds since 1970; None if it does not decode.

    None is in the future, which brokers refuse.
    """
    if r.random() < 0.03:
        return "soon", None
    before = r.choice([-1, -86400, -9_999_999_999])
    seconds = before if r.random() < 0.1 else r.choice([0, 951782400, _seconds(r) % 1_750_000_000])
    at = _EPOCH + dt.timedelta(seconds=seconds, microseconds=r.choice([0, 0, 1, 500_000, 999_999]))
    zone = ""
    match kind:
        case "date":
            at = at.replace(hour=0, minute=0, second=0, microsecond=0)
        case "timestamp":
            zone, ahead = r.choice([("", 0), ("Z", 0), ("+01:00", 60), ("-0930", -570), ("+05", 300)])
    micros = (at - _EPOCH) // dt.timedelta(microseconds=1)
    ms = micros // 1000 if micros >= 0 else None
    match kind:
        case "bigint":
            return micros // 1000, ms
        case "date":
            return at.date().isoformat(), ms
        case "timestamp":
            at += dt.timedelta(minutes=ahead)
    return at.isoformat(sep=r.choice("T ")) + zone, ms


def _float(r: random.Random) -> Any:
    return r.choice([_number(_shorter(v)) for v in (0.0, -0.0, 1.5, 0.1, 3.4028234e38, 16777216.0, -7.25, 0.3)] + [
        "NaN", "Infinity", "-Infinity"])  # fmt: skip


def _shorter(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _some(r: random.Random, make: Any) -> list[Any]:
    return [None if r.random() < 0.15 else make() for _ in range(r.choice([0, 0, 1, 2, 3]))]


def value_of(r: random.Random, name: str) -> Any:
    """Return what stands in JSON for a value of a column; `_Exact` numbers are written as they are."""
    match name:
        case "s":
            return r.choice(_TEXTS)
        case "u":
            return r.choice("xyz")
        case "t" | "h" | "i" | "l":
            return _int(r, {"t": 8, "h": 16, "i": 32, "l": 64}[name])
        case "m":
            return r.randrange(-1000, 1000)
        case "f":
            return _float(r)
        case "d":
            return _number(r.choice([*_DOUBLES, r.uniform(-1e3, 1e3), r.gauss(0, 1e100)]))
        case "x":
            return _number(r.choice([r.randrange(-999, 999) / 8, r.uniform(-9, 9), -0.0, r.choice(_DOUBLES[:5])]))
        case "b":
            return r.random() < 0.5
        case "day":
            return _moment(r)[:10]
        case "at":
            return _moment(r) + r.choice(["", "Z", "+01:00", "-0930", "+05"])
        case "loc":
            return _moment(r)
        case "dec":
            return _Exact(r.choice(["0", "0.0", "-1.5", "1.005", "999999999.999", "-999999999.999", "1e3", "2.50"]))
        case "big":
            return _Exact(r.choice(["0.1", "9" * 28 + ".9999999999", "-1e-10", "12345678901234567890.5", "7"]))
        case "bin":
            return base64.b64encode(r.choice([b"", b"\x00", b"\xff\x00\x01", b"text", b"\x00\x00"])).decode()
        case "p":
            return _object(r, {"c": lambda: r.choice(["x", "", "y"]), "n": lambda: r.randrange(2)})
        case "w":
            return _object(r, {"d": lambda: value_of(r, "d"), "day": lambda: value_of(r, "day")})
        case "tags":
            return _some(r, lambda: r.choice(_TEXTS))
        case "props":
            return {r.choice(_TEXTS): item for item in _some(r, lambda: _int(r, 32))}
        case "deep":
            inner = {
                "a": lambda: _some(r, lambda: _int(r, 64)),
                "m": lambda: {k: value_of(r, "day") for k in r.sample("pqr", r.randrange(3))},
            }
            return _some(r, lambda: _object(r, inner))
    raise AssertionError(name)


class _Exact(str):
    """A number with all its digits."""

    __slots__ = ()


def _object(r: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an object: some fields are missing, some null, in any order; there may be one more."""
    out = {name: None if r.random() < 0.12 else make() for name, make in fields.items() if r.random() > 0.1}
    if r.random() < 0.1:
        out["unknown"] = r.choice([1, "x", {"y": [1, 2]}, [], None])
    names = list(out)
    r.shuffle(names)
    return {name: out[name] for name in names}


def text_of(value: Any, r: random.Random) -> str:
    if isinstance(value, _Exact):
        return str(value)
    gap = r.choice(["", "", " ", "\n"])
    if isinstance(value, dict):
        inside = f",{gap}".join(f"{text_of(name, r)}:{gap}{text_of(item, r)}" for name, item in value.items())
        return f"{{{gap}{inside}}}"
    if isinstance(value, list):
        return f"[{gap}{f',{gap}'.join(text_of(item, r) for item in value)}]"
    return json.dumps(value, ensure_ascii=r.random() < 0.5)


@dataclass(frozen=True)
class Record:
    """A record; `time` is the timestamp of what becomes of it, None if it does not decode."""

    key: Any
    value: str | None
    timestamp: int
    time: int | None


class Rows:
    """Columns, a type of keys, and records of them."""

    def __init__(self, r: random.Random, count: int) -> None:
        self.random = r
        self.key_type = r.choice(list(KEYS))
        #: Type of the column that has the event times, if one has.
        self.event = r.choice([None, None, "timestamp", "timestamp_ntz", "date", "bigint"])
        #: How many records have no timestamp, or one that there cannot be.
        self.untimed = r.choice([0, 0, 0.3])
        self.types = TYPES if self.event is None else {**TYPES, EVENT: self.event}
        plain = [name for name in TYPES if name not in NESTED]
        self.columns = sorted({*r.sample(plain, 8), *r.sample(NESTED, 2), "u", *self.types.keys() - TYPES.keys()})
        self.schema = ", ".join(f"{name} {self.types[name]}" for name in self.columns)
        self.records = [self._record() for _ in range(count)]

    def __str__(self) -> str:
        return f"key {self.key_type}, event time {self.event}, untimed {self.untimed}, {self.schema}"

    @property
    def all_decode(self) -> bool:
        """True if it is an error that one does not."""
        return self.event is None and not self.untimed

    def _record(self) -> Record:
        r = self.random
        key: Any = None
        if r.random() > 0.1:
            match self.key_type:
                case "string":
                    key = r.choice(_TEXTS)
                case "binary":
                    key = r.choice([b"", b"\x00", b"\xff", b"ab"])
                case kind:
                    key = _int(r, 32 if kind == "int" else 64)
        timestamp = 1_700_000_000_000 + r.randrange(10**7)
        if r.random() < self.untimed:
            timestamp = r.choice([-1, -1, -1, -5000])
        time = timestamp if timestamp >= -1 else None
        if r.random() < 0.08:
            return Record(key, None, timestamp, time)
        makers = {name: (lambda n=name: value_of(r, n)) for name in self.columns if name != EVENT}
        if self.event is not None:
            written, event_time = _event_time(r, self.event)
            makers[EVENT] = lambda: written
        fields = _object(r, makers)
        if fields.get(EVENT) is not None:
            time = event_time
        return Record(key, text_of(fields, r), timestamp, time)

    def message(self, record: Record) -> dict[str, Any]:
        """Return a record as it is produced."""
        key = record.key
        if isinstance(key, int):
            key = key.to_bytes(4 if self.key_type == "int" else 8, "big", signed=True)
        return {"key": key, "value": record.value, "timestamp": record.timestamp}

    def frame(self, spark: Any, *, tombstones: bool) -> Any:
        """Return the tombstones or the other records that decode, as a DataFrame that Spark's `from_json` reads."""
        rows = [
            (bytearray(x.key) if isinstance(x.key, bytes) else x.key, x.value, x.time)
            for x in self.records
            if x.time is not None and tombstones == (x.value is None)
        ]
        frame = spark.createDataFrame(rows, f"k {self.key_type}, value string, {TIME} bigint")
        # Whatever the session's zone is: times without one are in UTC.
        parsed = F.from_json("value", self.schema, {"mode": "FAILFAST", "timeZone": "UTC"})
        return frame.select("k", parsed.alias("v"), TIME).select("k", "v.*", TIME)
