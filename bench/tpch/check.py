"""Runs queries through the real legs, and compares what comes out with Spark SQL over the same rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DateType, DecimalType

from bench.nexmark.check import Verdict
from bench.tpch.tables import SCHEMAS, Change, declared, key_of
from sparkrelay import StreamsBuilder
from sparkrelay.errors import SparkRelayError
from sparkrelay.testing import TopologyTestDriver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

QUERIES: Final = {file.stem: file.read_text() for file in sorted((Path(__file__).parent / "queries").glob("*.sql"))}
_BATCHES: Final = 6
_PARTITIONS: Final = 3
_SHOWN: Final = 3


def check(
    spark: SparkSession, changes: Sequence[Change], names: Collection[str], *, seed: int = 0
) -> Iterator[Verdict]:
    """Yield what came of each query.

    Rows come in several micro-batches, cut where chance says, over partitions of each topic. In the middle the instance
    is replaced by one that restores its state from the changelogs.

    Args:
        spark: a local session.
        changes: of the tables.
        names: which queries.
        seed: of where micro-batches are cut.
    """
    _make_views(spark, changes)
    for name in names:
        try:
            rows = _answer(spark, QUERIES[name], changes, seed)
        except SparkRelayError as error:
            yield Verdict(name, f"there is no answer: {' '.join(str(error).split())}")
            continue
        truth = spark.sql(QUERIES[name])
        wanted = Counter(tuple(row) for row in truth.collect())
        found = Counter(_typed(row, truth.schema) for row in rows)
        if not rows:
            # Totals have a row from their first one on.
            wanted -= Counter([(None,) * len(truth.columns)])
        missing, more = [*(wanted - found).elements()], [*(found - wanted).elements()]
        differs = (
            f"{len(missing)} rows are missing, such as {missing[:_SHOWN]}; {len(more)} are not Spark's: {more[:_SHOWN]}"
        )
        yield Verdict(name, differs if missing or more else "exact", len(rows))


def _make_views(spark: SparkSession, changes: Sequence[Change]) -> None:
    """Make a view of each table as it is in the end."""
    held: dict[str, dict[int | str, dict[str, Any]]] = {table: {} for table in SCHEMAS}
    for change in changes:
        held[change.table].pop(change.key, None)
        if change.row is not None:
            held[change.table][change.key] = change.row
    for table, schema in SCHEMAS.items():
        rows = [{key_of(table): key, **row} for key, row in held[table].items()]
        spark.createDataFrame(rows, schema).createOrReplaceTempView(table)


def _typed(row: Mapping[str, Any], schema: StructType) -> tuple[Any, ...]:
    """Return the values of a row of JSON as Spark has them."""
    values = []
    for field in schema:
        value, kind = row.get(field.name), field.dataType
        if value is not None and isinstance(kind, DecimalType):
            value = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
        elif value is not None and isinstance(kind, DateType):
            value = date.fromisoformat(value)
        values.append(value)
    return tuple(values)


def _answer(spark: SparkSession, query: str, changes: Sequence[Change], seed: int) -> list[dict[str, Any]]:
    builder = StreamsBuilder(spark)
    declared(builder)
    builder.sql(query).to("answer")
    draw = random.Random(seed)
    cuts = sorted(draw.sample(range(1, len(changes)), min(_BATCHES, len(changes)) - 1))
    parts = [changes[start:stop] for start, stop in pairwise([0, *cuts, len(changes)])]
    replaced_after = draw.randrange(len(parts))
    topology = builder.build()
    with TopologyTestDriver(topology, spark=spark, partitions=_PARTITIONS, batch="all") as driver:
        topics = {topic: driver.create_input_topic(topic) for topic in topology.source_topics}
        for number, part in enumerate(parts):
            for change in part:
                if change.table in topics:
                    topics[change.table].pipe_input(change.key, change.row)
            driver.process()
            if number == replaced_after:
                driver.restart(from_changelog=True)
        newest = {record.key: record.value for record in driver.create_output_topic("answer").read_records()}
    return [row for row in newest.values() if row is not None]
