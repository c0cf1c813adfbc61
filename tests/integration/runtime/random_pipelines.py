"""Random rows and random pipelines that mean the same on a stream and on a DataFrame, all made of one seed."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import math
import random
import struct
from dataclasses import dataclass, field
from typing import Any

import pandas as pd  # noqa: TC002 - PySpark reads the hints
from pyspark.sql import functions as F

from sparkrelay import Integer, Json, Long, Raw, StreamsBuilder, String

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
_EXACTLY = {"timestamp": F.unix_micros, "timestamp_ntz": lambda name: F.col(name).cast("string")}
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
_TIMES = (-62135596800, -2208988801, -86400, -1, 0, 1, 951782400, 1_700_000_000, 4102444800, 253402300799)


def _int(r: random.Random, bits: int) -> int:
    top = 1 << (bits - 1)
    return r.choice([0, 1, -1, r.randrange(-9, 10), r.randrange(-9, 10), top - 1, -top, r.randrange(-top, top)])


def _seconds(r: random.Random) -> int:
    return r.choice([r.choice(_TIMES), 1_700_000_000 + r.randrange(7200), 1_700_000_000 + r.randrange(7200)])


def _moment(r: random.Random) -> str:
    """Return a time as one of the texts that ISO-8601 allows, without its zone."""
    at = dt.datetime.fromtimestamp(0, dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=_seconds(r))
    text = at.isoformat(sep=r.choice("T "))
    return text + r.choice(["", "", ".5", ".123", ".123456", ".000001"])


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


def _value(r: random.Random, name: str) -> Any:
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
            return _object(r, {"d": lambda: _value(r, "d"), "day": lambda: _value(r, "day")})
        case "tags":
            return _some(r, lambda: r.choice(_TEXTS))
        case "props":
            return {r.choice(_TEXTS): item for item in _some(r, lambda: _int(r, 32))}
        case "deep":
            inner = {
                "a": lambda: _some(r, lambda: _int(r, 64)),
                "m": lambda: {k: _value(r, "day") for k in r.sample("pqr", r.randrange(3))},
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


def _text(value: Any, r: random.Random) -> str:
    if isinstance(value, _Exact):
        return str(value)
    gap = r.choice(["", "", " ", "\n"])
    if isinstance(value, dict):
        inside = f",{gap}".join(f"{_text(name, r)}:{gap}{_text(item, r)}" for name, item in value.items())
        return f"{{{gap}{inside}}}"
    if isinstance(value, list):
        return f"[{gap}{f',{gap}'.join(_text(item, r) for item in value)}]"
    return json.dumps(value, ensure_ascii=r.random() < 0.5)


@dataclass(frozen=True)
class Record:
    key: Any
    value: str | None
    timestamp: int


@dataclass
class Pipeline:
    """Steps on rows, then perhaps a grouping; `history` says what they are."""

    name: str
    steps: list[Any] = field(default_factory=list)
    moved: tuple[str, int] | None = None
    group: list[Any] | None = None
    not_null: Any = None
    aggregates: list[Any] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)
    tolerance: dict[str, float] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)

    def on(self, rows: Any, *, stream: bool) -> Any:
        """Apply it to a stream or to a DataFrame."""
        for step in self.steps:
            rows = step(rows)
        if stream and self.moved is not None:
            rows = rows.repartition(self.moved[0], partitions=self.moved[1])
        if self.group is not None:
            if not stream and self.not_null is not None:
                rows = rows.where(self.not_null)
            rows = rows.groupBy(*self.group).agg(*self.aggregates)
        for step in self.after:
            rows = step(rows)
        return rows


class Round:
    """What one seed stands for."""

    def __init__(self, seed: int | str, pipelines: int = 6, rows: int = 150) -> None:
        self.random = r = random.Random(seed)
        self.key_type = r.choice(list(KEYS))
        plain = [name for name in TYPES if name not in NESTED]
        self.columns = sorted({*r.sample(plain, 8), *r.sample(NESTED, 2), "u"})
        self.schema = ", ".join(f"{name} {TYPES[name]}" for name in self.columns)
        self.records = [self._record() for _ in range(rows)]
        self.pipelines = [self._pipeline(f"p{number}") for number in range(pipelines)]
        cuts = [0, *sorted(r.sample(range(1, rows), 2)), rows]
        #: What is written before each start of an instance, and the largest batches that it makes.
        self.parts = [(self.records[a:b], r.choice([5, 17, 60, 500_000])) for a, b in itertools.pairwise(cuts)]
        #: The start at which the local state is gone; none if there is no such start.
        self.state_lost_at = r.choice([1, 2, 3])

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
        value = None
        if r.random() > 0.08:
            value = _text(_object(r, {name: (lambda n=name: _value(r, n)) for name in self.columns}), r)
        return Record(key, value, 1_700_000_000_000 + r.randrange(10**7))

    def builder(self, source: str, sinks: dict[str, str]) -> StreamsBuilder:
        """Return the topology, as far as it is not refused."""
        builder = StreamsBuilder()
        for pipeline in self.pipelines:
            if pipeline.name in sinks:
                stream = builder.stream(
                    source, key=KEYS[self.key_type]("k"), value=Json(self.schema), name=pipeline.name
                )
                pipeline.on(stream, stream=True).to(sinks[pipeline.name], value=Json())
        return builder

    def message(self, record: Record) -> dict[str, Any]:
        """Return a record as it is produced."""
        key = record.key
        if isinstance(key, int):
            key = key.to_bytes(4 if self.key_type == "int" else 8, "big", signed=True)
        return {"key": key, "value": record.value, "timestamp": record.timestamp}

    def expected(self, spark: Any, pipeline: Pipeline) -> tuple[list[str], int]:
        """Return the rows of a pipeline, as Spark computes and writes them, and how many tombstones pass it."""
        alive = self._batch(spark, [record for record in self.records if record.value is not None])
        dead = self._batch(spark, [record for record in self.records if record.value is None])
        tombstones = 0 if pipeline.group is not None else pipeline.on(dead, stream=False).count()
        return self.shown(pipeline.on(alive, stream=False)), tombstones

    @staticmethod
    def shown(frame: Any) -> list[str]:
        """Return rows as Spark writes them in JSON."""
        options = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS"}
        whole = F.struct(*(F.col(f"`{name}`") for name in frame.columns))
        return [row[0] for row in frame.select(F.to_json(whole, options)).collect()]

    def _batch(self, spark: Any, records: list[Record]) -> Any:
        """Return records as a DataFrame, read by Spark's own `from_json`."""
        rows = [(bytearray(x.key) if isinstance(x.key, bytes) else x.key, x.value) for x in records]
        frame = spark.createDataFrame(rows, f"k {self.key_type}, value string")
        parsed = F.from_json("value", self.schema, {"mode": "FAILFAST"})
        return frame.select("k", parsed.alias("v")).select("k", "v.*")

    # -- pipelines ------------------------------------------------------------------------------------------------

    def _pipeline(self, name: str) -> Pipeline:
        r, p = self.random, Pipeline(name)
        here = {"k": self.key_type, **{column: TYPES[column] for column in self.columns}}
        for _ in range(r.randrange(4)):
            self._step(p, here)
        if r.random() < 0.25:
            self._finish_stateless(p, here)
        else:
            self._group(p, here)
        return p

    def _say(self, p: Pipeline, text: str, step: Any) -> None:
        p.steps.append(step)
        p.history.append(text)

    def _step(self, p: Pipeline, here: dict[str, str]) -> None:
        r = self.random
        plain = [name for name in here if name not in NESTED]
        column = r.choice(plain)
        kind = here[column]
        match r.randrange(8):
            case 0:
                condition = r.choice([f"{column} is not null", f"{column} is null or k is not null", "u != 'x'"])
                self._say(p, f"where({condition})", lambda rows: rows.where(condition))
            case 1:
                condition = F.coalesce(F.col("u") > "x", F.lit(True))
                self._say(p, "filter(u > x)", lambda rows: rows.filter(condition))
            case 2:
                made = F.when(F.col("u") == "x", F.col(column))
                self._say(p, f"withColumn({column} when)", lambda rows: rows.withColumn("c1", made))
                here["c1"] = kind
            case 3:
                self._say(p, "transform", lambda rows: rows.transform(_with_length))
                here["c2"] = "int"
            case 4:
                self._say(p, "udf", lambda rows: rows.withColumn("c3", _turned()("u")))
                here["c3"] = "string"
            case 5:
                self._say(p, "pandas_udf", lambda rows: rows.withColumn("c4", _doubled()(F.length("u"))))
                here["c4"] = "bigint"
            case 6:
                text = f"{column} as c5"
                self._say(p, f"selectExpr(*, {text})", lambda rows: rows.selectExpr("*", text))
                here["c5"] = kind
            case 7:
                gone = r.sample([name for name in here if name not in {"k", "u", column}], r.choice([1, 2]))
                self._say(p, f"drop{gone}", lambda rows: rows.drop(*gone))
                for name in gone:
                    del here[name]
        # A second step of one name would make a column twice.
        made_twice = [name for name in ("c1", "c2", "c3", "c4", "c5") if name in here]
        for name in made_twice:
            other = f"{name}{len(p.steps)}"
            if other not in here:
                p.steps.append(lambda rows, old=name, new=other: rows.withColumnRenamed(old, new))
                here[other] = here.pop(name)

    def _finish_stateless(self, p: Pipeline, here: dict[str, str]) -> None:
        r = self.random
        kept = [name for name in here if name == "k" or r.random() < 0.7]
        if r.random() < 0.4:
            kept = [name for name in kept if "array" not in here[name] and "map" not in here[name]]
            p.moved = "k", r.choice([1, 3])
            p.history.append(f"repartition{p.moved}")
        columns = self._exact(kept, here)
        p.steps.append(lambda rows: rows.select(*kept))
        p.after.append(lambda rows: rows.select(*columns))
        p.history.append(f"select{kept}")

    def _exact(self, names: list[str], here: dict[str, str]) -> list[Any]:
        """Show times with their microseconds, half of the time: in JSON they have milliseconds."""
        if self.random.random() < 0.5:
            return [F.col(name) for name in names]
        return [_EXACTLY.get(here[name], F.col)(name).alias(name) for name in names]

    def _group(self, p: Pipeline, here: dict[str, str]) -> None:
        r = self.random
        plain = [name for name in here if name not in {"tags", "props", "deep"}]
        timed = [name for name in plain if here[name] in {"timestamp", "timestamp_ntz"}]
        ways = ["key", "column", "columns", "key and more", "expression", "struct"]
        way = r.choice(ways + ["window", "window", "key and window"] * bool(timed))
        window = None
        if "window" in way:
            window = F.window(r.choice(timed), *r.choice([("1 hour",), ("1 hour", "20 minutes"), ("7 days",)]))
        names: list[Any]
        match way:
            case "key" | "key and window":
                names = ["k"]
            case "column" | "window":
                names = [r.choice(plain)]
            case "columns":
                names = r.sample(plain, 2)
            case "key and more":
                names = ["k", r.choice([name for name in plain if name != "k"])]
            case "expression":
                names = [r.choice([F.length("u").alias("e"), F.upper("u"), F.coalesce("u", F.lit("none")).alias("e")])]
            case "struct":
                pair = r.sample([name for name in plain if name not in {*NESTED, *timed}], 2)
                names = [F.struct(*pair).alias("e")]
        p.group = names + ([window] if window is not None else [])
        texts = [name for name in names if isinstance(name, str)]
        # Nothing is known of the key behind transform(): with another column, its null is a value like any other.
        if "k" in texts and (len(names) == 1 or "transform" not in p.history):
            p.not_null = "k is not null"
        elif len(names) == 1:
            p.not_null = f"{names[0]} is not null" if isinstance(names[0], str) else names[0].isNotNull()
        p.history.append(f"groupBy {way}: {p.group}")
        for number in range(r.randrange(1, 6)):
            self._aggregate(p, here, f"a{number}")
        p.history.append(f"agg {p.aggregates}")
        for name in texts:
            # In JSON, times have milliseconds, and two groups would look the same.
            exact = _EXACTLY.get(here[name])
            if exact is not None:
                p.after.append(lambda rows, name=name, exact=exact: rows.withColumn(name, exact(name)))
        if r.random() < 0.3:
            p.after.append(lambda rows: rows.withColumn("a9", F.col("a0").isNull()))

    def _aggregate(self, p: Pipeline, here: dict[str, str], name: str) -> None:
        r = self.random
        what = r.choice(["count", "count *", "sum", "avg", "min", "max", "min", "max"])
        summed = [column for column in here if column in (SUMMED if what == "sum" else AVERAGED)]
        ordered = [c for c in here if c not in NESTED and not here[c].startswith("decimal")]
        if what in {"sum", "avg"} and summed:
            column = r.choice(summed)
            p.tolerance[name] = 1e4 if column == "l" else 1e-6
            made = {"sum": F.sum, "avg": F.avg}[what](column)
        elif what in {"min", "max"}:
            made = {"min": F.min, "max": F.max}[what](r.choice(ordered))
        else:
            made = F.count("*") if what == "count *" else F.count(r.choice(list(here)))
        p.aggregates.append(made.alias(name))


def _with_length(rows: Any) -> Any:
    return rows.withColumn("c2", F.length("u"))


def _turned() -> Any:
    return F.udf(lambda text: None if text is None else text[::-1] + "ß", "string")


def _doubled() -> Any:
    def double(numbers: pd.Series) -> pd.Series:
        return numbers * 2

    return F.pandas_udf(double, "bigint")
