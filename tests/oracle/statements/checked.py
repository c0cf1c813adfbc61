"""What comes of statements: each as a stream, in one pipeline with others, beside Spark batch."""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
import random
import re
import traceback
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.oracle.statements.grammar import Generator, Statement
from tests.oracle.statements.rows import LIMIT, STREAMS, TABLES, Data
from tests.oracle.topology.ours import Standby

from sparkrelay import Json, KTable, StreamsBuilder
from sparkrelay.catalyst.query_errors import query_errors_unlogged
from sparkrelay.errors import TopologyException
from sparkrelay.runtime.batch import residency
from sparkrelay.testing import TopologyTestDriver

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from sparkrelay import Topology

__all__ = ["TOGETHER", "Outcome", "outcomes"]

#: So many statements share their rows, and a pipeline.
TOGETHER: Final = 15
_VIEW: Final = re.compile(rf"\b({'|'.join((*STREAMS, *TABLES))})\b")
_TIME_FORMAT: Final = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSXXX"
_OPTIONS: Final = (
    f"map('timeZone', 'UTC', 'timestampFormat', '{_TIME_FORMAT}', "
    "'timestampNTZFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSS', 'ignoreNullFields', 'false')"
)
_SHOWN: Final = 3
#: Behind which a text of an error is another one each time.
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d+")
_AT: Final = re.compile(r"^\S+\.py:\d+: ?")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a statement.

    Attributes:
        seed: what stands for it.
        number: of the statement.
        statement: its texts.
        kind: ``exact``, ``wrong``, ``refused``, ``fault``, or ``invalid``: batch has no answer, either.
        text: where it is wrong, or the error.
        rows: how many there are.
    """

    seed: int | str
    number: int
    statement: Statement
    kind: str
    text: str = ""
    rows: int = 0

    @property
    def failed(self) -> bool:
        """It must not be so."""
        return self.kind in {"wrong", "fault"}

    @property
    def reason(self) -> str:
        """An error's text without what is this statement's own."""
        text = _AT.sub("", self.text.partition("\n")[0])
        for said in ("is not supported for", "holds a subquery", "depends on the time", "over (partition by"):
            if said in text[:400]:
                text = f"... {said}{text.partition(said)[2]}"
        return _QUOTED.sub("_", text)[:150]

    def __str__(self) -> str:
        return f"--seed {self.seed} --first {self.number} --count 1: {self.kind}: {self.text}\n    {self.statement}"


def outcomes(spark: SparkSession, seed: int | str, first: int, count: int) -> Iterator[Outcome]:
    """Yield what comes of statements.

    Args:
        spark: a local session.
        seed: what stands for all of them.
        first: number of the first one. Statements ``15 n`` to ``15 n + 14`` share their rows.
        count: how many.
    """
    logging.getLogger("sparkrelay").setLevel(logging.ERROR)
    batch = spark.newSession()
    batch.conf.set("spark.sql.shuffle.partitions", "1")
    batch.conf.set("spark.sql.session.timeZone", "UTC")
    for group in range(first // TOGETHER, (first + count - 1) // TOGETHER + 1):
        numbers = range(max(first, group * TOGETHER), min(first + count, (group + 1) * TOGETHER))
        yield from _Group(spark, batch, seed, group).outcomes(numbers)


class _Group:
    """Statements over the same rows."""

    def __init__(self, spark: SparkSession, batch: SparkSession, seed: int | str, group: int) -> None:
        self._spark, self._batch = spark, batch
        self._seed = seed
        self._name = f"{seed}.{group}"
        self._data = Data(self._name)
        self._data.make_views(batch)

    def outcomes(self, numbers: Sequence[int]) -> Iterator[Outcome]:
        running: dict[int, tuple[Statement, Counter[Any]]] = {}
        for number in numbers:
            statement = Generator(f"{self._seed}.{number}", self._data.columns).statement()
            made = Outcome(self._seed, number, statement, "exact")
            try:
                wanted = self._truth(statement)
            except (PySparkException, Py4JError) as error:
                yield replace(made, kind="invalid", text=_line(error))
                continue
            try:
                self._topology({number: statement})
            except TopologyException as error:
                yield replace(made, kind="refused", text=_line(error))
                continue
            except Exception as error:  # noqa: BLE001 - whatever else it is, it is a fault
                yield replace(made, kind="fault", text=_trace(error))
                continue
            running[number] = statement, wanted
        yield from self._compared(running)

    def _compared(self, running: dict[int, tuple[Statement, Counter[Any]]]) -> Iterator[Outcome]:
        """Run statements in one pipeline; of those that go wrong, each by itself."""
        if not running:
            return
        found: dict[int, Counter[Any]] = {}
        error = ""
        try:
            found = self._found({number: statement for number, (statement, _) in running.items()})
        except Exception as raised:  # noqa: BLE001 - which of them it is will be seen
            error = _trace(raised)
        for number, (statement, wanted) in running.items():
            made = Outcome(self._seed, number, statement, "exact", rows=sum(wanted.values()))
            wrong = error or _differences(statement, found[number], wanted)
            if not wrong:
                yield made
            elif len(running) == 1:
                yield replace(made, kind="fault" if error else "wrong", text=wrong)
            else:
                (alone,) = self._compared({number: (statement, wanted)})
                if alone.failed:
                    yield alone
                elif not error:
                    yield replace(made, kind="wrong", text=f"only beside others: {wrong}")
                else:
                    # Its neighbour's.
                    yield alone

    # -- batch ----------------------------------------------------------------------------------------------------

    def _truth(self, statement: Statement) -> Counter[Any]:
        with query_errors_unlogged():
            frame = self._batch.sql(statement.batch)
            rows = frame.selectExpr(f"to_json(struct(*), {_OPTIONS}) AS row").toArrow().column("row").to_pylist()
        return _rows(statement, map(_read, rows))

    # -- streams --------------------------------------------------------------------------------------------------

    def _topology(self, statements: dict[int, Statement]) -> tuple[Topology, set[int]]:
        """Return a pipeline that writes each statement's rows to a topic, and which of them are tables.

        Raises:
            TopologyException: a statement is refused.
        """
        builder = StreamsBuilder(self._spark)
        texts = [statement.stream for statement in statements.values()]
        self._data.declare(builder, {name for text in texts for name in _VIEW.findall(text)})
        tables = set()
        for number, statement in statements.items():
            frames = {"fixed": self._data.fixed(self._spark)} if "{fixed}" in statement.stream else {}
            rows = builder.sql(statement.stream, **frames)
            if statement.method is not None:
                method, arguments = statement.method
                if method == "dropDuplicatesWithinWatermark":
                    # Nothing is forgotten.
                    rows = rows.withWatermark("et", "3 hours")
                rows = getattr(rows, method)(*arguments).select(*(arguments[0] if arguments else rows.columns))
            if statement.final and isinstance(rows, KTable):
                rows = rows.outputMode("append")
            if isinstance(rows, KTable):
                tables.add(number)
            rows.to(f"out-{number}", value=Json())
        return builder.build(), tables

    def _found(self, statements: dict[int, Statement]) -> dict[int, Counter[Any]]:
        r = random.Random(f"cuts {self._name}")
        topology, tables = self._topology(statements)
        with (
            # There are not the slots for resident jobs, and their plans take as long to build as the others.
            mock.patch.object(residency, "_IN_A_ROW", 1 << 62),
            TopologyTestDriver(topology, spark=self._spark, partitions=self._data.partitions, batch="all") as driver,
        ):
            read = {*topology.source_topics, *(topic for leg in topology.global_tables for topic in leg.source.topics)}
            topics = {name: driver.create_input_topic(name) for name in read}
            standby = Standby(driver)
            for number, part in enumerate(self._data.parts):
                for name, topic in topics.items():
                    rows = [record for record in part if record.topic == name]
                    topic.pipe_rows(
                        (one.key, one.value and one.value.encode(), one.timestamp, one.partition) for one in rows
                    )
                driver.process()
                if number < len(self._data.parts) - self._data.last:
                    match r.randrange(5):
                        case 0:
                            driver.restart()
                        case 1:
                            driver.restart(from_changelog=True)
                        case 2:
                            standby.promote()
            # A stream whose rows a filter drops holds the others' time back for so long.
            driver.advance_wall_clock_time(dt.timedelta(minutes=2))
            found = {}
            for number, statement in statements.items():
                records = driver.create_output_topic(f"out-{number}").read_records()
                found[number] = _rows(statement, _newest(records, table=number in tables))
        return found


def _newest(records: Sequence[Any], *, table: bool) -> list[Any]:
    if not table:
        return [record.value or {} for record in records]
    rows: dict[Any, Any] = {}
    for record in records:
        rows[record.partition, record.key] = record.value
    return [row for row in rows.values() if row is not None]


def _read(row: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(row)
    return made


def _rows(statement: Statement, rows: Any) -> Counter[Any]:
    """Return rows that are compared: without those of later ones."""
    found: Counter[Any] = Counter()
    for row in rows:
        time = next((row[name] for name in statement.until if row.get(name) is not None), None)
        if time is None or time <= LIMIT:
            found[_plain_row(row, statement.inexact)] += 1
    return found


def _plain_row(row: dict[str, Any], inexact: frozenset[str]) -> tuple[Any, ...]:
    # In JSON, a null may be left out.
    return tuple((name, _plain(row[name], near=name in inexact)) for name in sorted(row) if row[name] is not None)


def _plain(value: Any, *, near: bool = False) -> Any:
    """Return the same for the same value, however it is written."""
    match value:
        case bool() | None:
            return value
        case dict():
            return _plain_row(value, frozenset())
        case list():
            return tuple(map(_plain, value))
        case float() | int():
            # Both zeros are one group, and Spark may show either.
            return f"{float(value):.9g}" if near else str(Decimal(repr(value)).normalize() + 0)
        case _:
            return value


def _differences(statement: Statement, found: Counter[Any], wanted: Counter[Any]) -> str:
    """Return where rows differ, in words; an empty text if they do not."""
    if statement.inexact:
        found, wanted = _close(found, wanted)
    lines = []
    for word, rows in (("too many", found - wanted), ("missing", wanted - found)):
        lines += [f"{word}, {count} times: {dict(row)}" for row, count in list(rows.items())[:_SHOWN]]
    if lines:
        lines.insert(0, f"{sum(found.values())} rows where batch has {sum(wanted.values())}")
    return "\n    ".join(lines)


def _close(found: Counter[Any], wanted: Counter[Any]) -> tuple[Counter[Any], Counter[Any]]:
    """Return rows without pairs of which the numbers differ by a billionth."""
    left, right = list((found - wanted).elements()), list((wanted - found).elements())
    for row in list(left):
        near = next((other for other in right if _near(row, other)), None)
        if near is not None:
            left.remove(row)
            right.remove(near)
    return Counter(left), Counter(right)


def _near(row: Any, other: Any) -> bool:
    def same(one: Any, two: Any) -> bool:
        try:
            return one == two or math.isclose(float(one), float(two), rel_tol=1e-7, abs_tol=1e-9)
        except (TypeError, ValueError):
            return False

    return len(row) == len(other) and all(a[0] == b[0] and same(a[1], b[1]) for a, b in zip(row, other, strict=True))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def _trace(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = next(
        (
            f"{one.filename.rpartition('/src/')[2]}:{one.lineno}"
            for one in reversed(frames)
            if "sparkrelay" in one.filename
        ),
        "",
    )
    return f"{type(error).__name__} at {where}: {_line(error)}"
