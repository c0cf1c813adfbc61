"""The rows of some statements: records of topics in one order, and the batch views that they come to."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from tests.integration.runtime.random_rows import TYPES, text_of, value_of

from sparkrelay import Json, Long, String

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from sparkrelay import StreamsBuilder

__all__ = ["LIMIT", "STILL", "STREAMS", "TABLES", "TIMED", "Data", "Record"]

STREAMS: Final = ("clicks", "views", "logs")
#: Streams with a watermark.
TIMED: Final = ("clicks", "views")
TABLES: Final = ("users", "items", "codes", "world")
#: Tables that do not change.
STILL: Final = ("codes", "world")
#: How late rows may come; they are out of order by half of it.
DELAY: Final = "10 seconds"

_BEGIN: Final = dt.datetime(2023, 11, 14, 22, 10, tzinfo=dt.UTC)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: Windows and joins of the rows themselves are over by then, and those of later rows begin after it.
LIMIT: Final = "2023-11-14T23:00:00.000Z"
_ROUNDS: Final = (3600, 7200, 10_800)
_KEYS: Final = {"bigint": (Long, (0, 1, 2, 3, 4, -7)), "string": (String, ("p", "q", "r", "", "日本", "p q"))}
_GROUPS: Final = ("x", "y", "z")
#: Columns that some rounds have, beside those that all have. In JSON, a map's values are not in one order.
_MORE: Final = tuple(name for name in TYPES if name not in {"u", "at", "x", "s", "props", "deep"})


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic.

    Attributes:
        topic: its name.
        key: None for a record without a key.
        fields: of its value, as they stand in JSON; None for a tombstone.
        number: its place among all records; its timestamp says so, too.
        partition: None for that of the key.
    """

    topic: str
    key: Any
    fields: dict[str, Any] | None
    number: int
    partition: int | None = None

    @property
    def value(self) -> str | None:
        """JSON; None for a tombstone."""
        return None if self.fields is None else text_of(self.fields, random.Random(self.number))

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return int((_BEGIN - _EPOCH).total_seconds() * 1000) + self.number * 1000


class Data:
    """What one seed stands for.

    Attributes:
        key_type: of all keys.
        columns: name of a view -> its columns with their types.
        parts: records that arrive between two cuts; those of the last parts close what is open.
        last: number of parts that close.
        partitions: of each topic.
    """

    def __init__(self, seed: int | str, count: int = 80) -> None:
        self._random = r = random.Random(f"rows {seed}")
        self.key_type = r.choice(list(_KEYS))
        self.partitions = r.choice([1, 2, 2, 3])
        self.columns: dict[str, dict[str, str]] = {}
        for name in STREAMS:
            more = sorted(r.sample(_MORE, 3))
            kept = {"k": self.key_type, "seq": "bigint", "g": "string", "n": "int", "x": "double", "s": "string"}
            self.columns[name] = {**kept, "et": "timestamp", "fk": self.key_type, **{one: TYPES[one] for one in more}}
        for name in TABLES:
            more = sorted(r.sample(_MORE, 2))
            kept = {"id": self.key_type, "ver": "bigint", "g": "string", "v": "int", "y": "double", "s": "string"}
            self.columns[name] = {**kept, "fk": self.key_type, **{one: TYPES[one] for one in more}}
        self.columns["fixed"] = {"code": self.key_type, "label": "string", "weight": "int"}
        self._fixed = [(key, r.choice(["one", "two", None]), r.randrange(9)) for key in self._keys[:4]] * r.choice(
            [1, 2]
        )
        still = [Record(name, key, self._fields(name, 0), 0) for name in STILL for key in self._keys[1:]]
        topics = [*STREAMS, *TIMED, "users", "users", "items", "items"]
        rows = [self._record(r.choice(topics), number) for number in range(count)]
        cuts = sorted(r.sample(range(1, len(rows)), r.choice([2, 3, 5])))
        self.parts = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        self.parts.insert(0, still)
        closing = self._closing(rows)
        for after in _ROUNDS:
            numbers = range(count, count + len(closing))
            self.parts.append([self._later(one, number, after) for one, number in zip(closing, numbers, strict=True)])
            count += len(closing)
        self.last = len(_ROUNDS)

    @property
    def records(self) -> list[Record]:
        """All records, in their order."""
        return [record for part in self.parts for record in part]

    def schema(self, name: str) -> str:
        """Return the columns of a view's values."""
        _, *columns = self.columns[name].items()
        return ", ".join(f"{column} {kind}" for column, kind in columns)

    def declare(self, builder: StreamsBuilder, names: Iterable[str]) -> None:
        """Make the sources of these names, as views of the builder."""
        form = _KEYS[self.key_type][0]
        for name in sorted({*names} & {*STREAMS, *TABLES}):
            value = Json(self.schema(name))
            if name == "world":
                builder.global_table(name, key=form("id"), value=value)
            elif name in TABLES:
                builder.table(name, key=form("id"), value=value)
            elif name in TIMED:
                stream = builder.stream(name, key=form("k"), value=value)
                stream.withWatermark("et", DELAY).createOrReplaceTempView(name)
            else:
                builder.stream(name, key=form("k"), value=value)

    def fixed(self, session: SparkSession) -> DataFrame:
        """Return the DataFrame ``fixed``."""
        return session.createDataFrame(self._fixed, ", ".join(map(" ".join, self.columns["fixed"].items())))

    def make_views(self, session: SparkSession) -> None:
        """Make the batch views: of tables as they are in the end, and as ``users_versions`` with all versions of rows.

        A version counts for what comes behind its number ``from_``, up to ``to_``.
        """
        of: dict[str, list[Record]] = {name: [] for name in (*STREAMS, *TABLES)}
        for record in self.records:
            of[record.topic].append(record)
        for name in STREAMS:
            rows = [(one.key, one.value, one.number, 0) for one in of[name] if one.value is not None]
            self._frame(session, name, rows).drop("from_", "to_").createOrReplaceTempView(name)
        for name in TABLES:
            versions: dict[Any, list[tuple[Any, str | None, int, int]]] = {}
            for one in of[name]:
                if one.key is None:
                    continue
                known = versions.setdefault(one.key, [])
                if known:
                    known[-1] = (*known[-1][:3], one.number)
                known.append((one.key, one.value, one.number, 1 << 40))
            rows = [row for known in versions.values() for row in known if row[1] is not None]
            self._frame(session, name, rows).createOrReplaceTempView(f"{name}_versions")
            newest = [row for row in rows if row[3] == 1 << 40]
            self._frame(session, name, newest).drop("from_", "to_").createOrReplaceTempView(name)
        self.fixed(session).createOrReplaceTempView("fixed")

    def _frame(self, session: SparkSession, name: str, rows: list[Any]) -> DataFrame:
        key = next(iter(self.columns[name]))
        frame = session.createDataFrame(rows, f"{key} {self.key_type}, value string, from_ bigint, to_ bigint")
        parsed = F.from_json("value", self.schema(name), {"mode": "FAILFAST", "timeZone": "UTC"})
        return frame.select(key, parsed.alias("parsed"), "from_", "to_").select(key, "parsed.*", "from_", "to_")

    @property
    def _keys(self) -> tuple[Any, ...]:
        return _KEYS[self.key_type][1]

    def _record(self, topic: str, number: int) -> Record:
        r = self._random
        key = r.choice(self._keys) if r.random() > 0.06 else None
        gone = topic in TABLES and r.random() < 0.15
        return Record(topic, key, None if gone else self._fields(topic, number), number)

    def _fields(self, topic: str, number: int) -> dict[str, Any]:
        r = self._random
        fields: dict[str, Any] = {}
        _, *columns = self.columns[topic]
        for column in columns:
            null = r.random() < (0.03 if column == "et" else 0.12)
            match column:
                case "seq" | "ver":
                    fields[column] = number
                case _ if null:
                    if r.random() < 0.5:
                        fields[column] = None
                case "et":
                    fields[column] = _moment(number - r.choice([0, 0, 1, 3, 5]), r.choice([0, 0, 250_000, 999_999, 1]))
                case "g":
                    fields[column] = r.choice(_GROUPS)
                case "n" | "v":
                    fields[column] = r.randrange(-5, 15)
                case "x" | "y":
                    fields[column] = r.randrange(-80, 80) / 8
                case "fk":
                    fields[column] = r.choice(self._keys)
                case _:
                    fields[column] = value_of(r, column)
        return fields

    def _closing(self, rows: list[Record]) -> list[Record]:
        """Return rows of streams in which each value of the columns comes that rows are spread by."""
        seen: set[Any] = set()
        chosen = []
        for record in rows:
            if record.topic not in STREAMS:
                continue
            fields = record.fields or {}
            new = {(record.topic, name, str(fields.get(name))) for name in ("g", "n", "fk", "s")}
            new |= {(record.topic, "k", str(record.key)), (record.topic, "both", str(record.key), fields.get("g"))}
            if fields.get("et") is not None and new - seen:
                seen |= new
                chosen.append(record)
        # A partition without a row would hold the time of its task back.
        ends = [next((one for one in chosen if one.topic == name), None) for name in STREAMS]
        spread = range(self.partitions)
        return [*chosen, *(replace(one, key=None, partition=at) for one in ends if one is not None for at in spread)]

    def _later(self, record: Record, number: int, seconds: int) -> Record:
        fields = {**(record.fields or {}), "et": _moment(number + seconds, 0), "seq": number}
        return replace(record, fields=fields, number=number)


def _moment(seconds: int, micros: int) -> str:
    at = _BEGIN + dt.timedelta(seconds=seconds, microseconds=micros)
    return at.isoformat().replace("+00:00", "Z")
