"""Random pipelines that mean the same on a stream and on a DataFrame, over random rows, all made of one seed."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import pandas as pd  # noqa: TC002 - PySpark reads the hints
from pyspark.sql import functions as F
from tests.integration.runtime.random_rows import AVERAGED, EVENT, KEYS, NESTED, SUMMED, TIME, Rows

from sparkrelay import Json, StreamsBuilder

ZONES = ("UTC", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu")
#: What depends on the session's zone, by the type that comes out.
_ZONED = {
    "int": ("hour({})", "dayofyear({})"),
    "date": ("to_date({})",),
    "timestamp": ("date_trunc('hour', {})", "date_trunc('DAY', {})", "cast({} as timestamp)"),
    "timestamp_ntz": ("cast({} as timestamp_ntz)", "cast({} as timestamp) + interval 1 day"),
    "string": ("cast(cast({} as timestamp) as string)",),
}
_EXACTLY = {"timestamp": F.unix_micros, "timestamp_ntz": lambda name: F.col(name).cast("string")}


@dataclass
class Pipeline:
    """Steps on rows, then perhaps a grouping; `history` says what they are."""

    name: str
    steps: list[Any] = field(default_factory=list)
    kept: list[str] | None = None
    moved: tuple[str, int] | None = None
    group: list[Any] | None = None
    not_null: Any = None
    aggregates: list[Any] = field(default_factory=list)
    columns: list[Any] | None = None
    after: list[Any] = field(default_factory=list)
    tolerance: dict[str, float] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)

    def on(self, rows: Any, *, stream: bool) -> Any:
        """Apply it to a stream or to a DataFrame, which has a column for the timestamps of records."""
        hidden = () if stream else (TIME,)
        for step in self.steps:
            rows = step(rows)
        if self.kept is not None:
            rows = rows.select(*self.kept, *hidden)
        if stream and self.moved is not None:
            rows = rows.repartition(self.moved[0], partitions=self.moved[1])
        if self.group is not None:
            if not stream and self.not_null is not None:
                rows = rows.where(self.not_null)
            rows = rows.groupBy(*self.group).agg(*self.aggregates, *(F.max(name).alias(name) for name in hidden))
        if self.columns is not None:
            rows = rows.select(*self.columns, *hidden)
        for step in self.after:
            rows = step(rows)
        return rows


class Round:
    """What one seed stands for."""

    def __init__(self, seed: int | str, pipelines: int = 6, rows: int = 150) -> None:
        self.random = r = random.Random(seed)
        self.rows = Rows(r, rows)
        #: The session's zone.
        self.zone = r.choice(ZONES)
        self.pipelines = [self._pipeline(f"p{number}") for number in range(pipelines)]
        cuts = [0, *sorted(r.sample(range(1, rows), 2)), rows]
        #: What is written before each start of an instance, and the largest batches that it makes.
        self.parts = [(self.rows.records[a:b], r.choice([5, 17, 60, 500_000])) for a, b in itertools.pairwise(cuts)]
        #: The start at which the local state is gone; none if there is no such start.
        self.state_lost_at = r.choice([1, 2, 3])

    def __str__(self) -> str:
        lines = [f"  {pipeline.name}: {' | '.join(pipeline.history)}" for pipeline in self.pipelines]
        return "\n".join([f"{self.zone}, {self.rows}", *lines])

    def builder(self, source: str, sinks: dict[str, str]) -> StreamsBuilder:
        """Return the topology, as far as it is not refused."""
        builder = StreamsBuilder()
        for pipeline in self.pipelines:
            if pipeline.name in sinks:
                stream = builder.stream(
                    source,
                    key=KEYS[self.rows.key_type]("k"),
                    value=Json(self.rows.schema),
                    timestamp=None if self.rows.event is None else EVENT,
                    name=pipeline.name,
                )
                pipeline.on(stream, stream=True).to(sinks[pipeline.name], value=Json())
        return builder

    @property
    def config(self) -> dict[str, Any]:
        """Return settings of the instance."""
        return {"deserialization.exception.handler": "fail" if self.rows.all_decode else "log-and-continue"}

    def expected(self, spark: Any, pipeline: Pipeline) -> tuple[list[str], list[int]]:
        """Return a pipeline's rows, as Spark computes and writes them, and the times of the tombstones that pass it."""
        dead = []
        if pipeline.group is None:
            dead = pipeline.on(self.rows.frame(spark, tombstones=True), stream=False).select(TIME).collect()
        alive = pipeline.on(self.rows.frame(spark, tombstones=False), stream=False)
        return self.shown(alive), [row[0] for row in dead]

    @staticmethod
    def shown(frame: Any) -> list[str]:
        """Return rows as Spark writes them in JSON."""
        options = {
            "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
            "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS",
            "timeZone": "UTC",
        }
        whole = F.struct(*(F.col(f"`{name}`") for name in frame.columns))
        return [row[0] for row in frame.select(F.to_json(whole, options)).collect()]

    # -- pipelines ------------------------------------------------------------------------------------------------

    def _pipeline(self, name: str) -> Pipeline:
        r, p = self.random, Pipeline(name)
        here = {"k": self.rows.key_type, **{column: self.rows.types[column] for column in self.rows.columns}}
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
        match r.randrange(10):
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
            case _:
                timed = [name for name in plain if here[name] in {"timestamp", "timestamp_ntz", "date"}]
                if timed:
                    made_kind = r.choice(list(_ZONED))
                    text = r.choice(_ZONED[made_kind]).format(r.choice(timed))
                    self._say(p, f"withColumn({text})", lambda rows: rows.withColumn("c6", F.expr(text)))
                    here["c6"] = made_kind
        # A second step of one name would make a column twice.
        made_twice = [name for name in ("c1", "c2", "c3", "c4", "c5", "c6") if name in here]
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
        p.kept, p.columns = kept, columns
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
        what = r.choice(["count", "count *", "sum", "avg", "min", "max", "min", "max", "set", "list", "mode", "median"])
        summed = [column for column in here if column in (SUMMED if what == "sum" else AVERAGED)]
        ordered = [c for c in here if c not in NESTED and not here[c].startswith("decimal")]
        if what in {"sum", "avg"} and summed:
            column = r.choice(summed)
            p.tolerance[name] = 1e4 if column == "l" else 1e-6
            made = {"sum": F.sum, "avg": F.avg}[what](column)
        elif what in {"min", "max"}:
            made = {"min": F.min, "max": F.max}[what](r.choice(ordered))
        elif what == "median" and summed:
            p.tolerance[name] = 1e-6
            made = F.median(r.choice(summed))
        elif what == "mode":
            # Of both zeros, Spark may show either.
            made = F.mode(r.choice([c for c in ordered if here[c] not in {"float", "double"}]), True)
        elif what in {"set", "list"}:
            made = F.size({"set": F.collect_set, "list": F.collect_list}[what](r.choice(ordered)))
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
