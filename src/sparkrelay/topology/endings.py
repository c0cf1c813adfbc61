"""Where rows leave a pipeline: topics, the driver's console, and functions of the user's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, functions as F
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.types import StructType

from sparkrelay.catalyst.frames import analyzed
from sparkrelay.errors import TopologyException
from sparkrelay.records.format import Format
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.describe import format_text
from sparkrelay.topology.frames import Frame
from sparkrelay.topology.naming import check_name, check_topic
from sparkrelay.topology.nodes import ActionNode, SinkNode, TableJoinNode
from sparkrelay.topology.public_calls import public_calls
from sparkrelay.topology.reading.calls import Call
from sparkrelay.topology.record import as_column, spark_errors, unique, with_rows
from sparkrelay.topology.refusals import KEY_OF_PAIRS
from sparkrelay.topology.schemas import without_kafka
from sparkrelay.topology.structure import Show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.structure import Foreach, ForeachBatch

#: Rows, and characters of a cell, that show() may print.
_MOST_SHOWN: Final = 1_000
_SHOWN_WIDTH: Final = 20


@public_calls
class Ending(Frame):
    """Rows that may leave the pipeline here."""

    def to(
        self,
        topic: Any,
        *,
        key: Format | str | None = None,
        value: Format | None = None,
        headers: str | None = None,
        topics: Sequence[str] | None = None,
        circular: bool = False,
        name: str | None = None,
    ) -> Any:
        """Write the rows to a topic, which must exist; with a StructType: as ``DataFrame.to``.

        Args:
            topic: its name; or a Column with each row's topic, one of ``topics``. A row with another one fails the
                micro-batch.
            key: the column that is the message key, written as what its type calls for: text, a 32-bit or a 64-bit
                number, or bytes. Or a format of that column, ``String("carrier")``. Without it a table's rows are keyed
                by their grouping columns, a stream's by the key they came with.
            value: format of the message value: ``Json()`` for the columns as they are, ``Json(without_key=True)`` for
                all but the key, ``Avro(schema)`` for those that the schema names, or a format of one column. A key that
                the schema lacks is left out.
                Without it the columns are written as JSON, and a stream that was read without formats is passed on as
                it is.
            headers: the column of the message headers, an array of structs of ``key`` (string) and ``value`` (binary),
                as ``kafka.headers`` is; it is no part of the value then. Without it there are none, but for a stream
                that was read without formats, whose column ``headers`` is taken.
            topics: with a Column: all topics that it may name. Each is a sink of its own.
            circular: True where rows may come back to steps that they have passed, as from a topic of retries. They go
                round until a condition of yours ends that.
            name: the sink's name in ``describe()``.

        Raises:
            TopologyException: an argument is of the wrong kind. A column of another type than its format's is found
                when the instance is made.
        """
        call_site = find_call_site()
        if isinstance(topic, StructType):
            return self._made(Call(call_site, "to"), lambda: DataFrame.to(self, topic))
        if isinstance(topic, Column):
            for chosen, rows in self._by_topic(topic, topics, call_site):
                named = None if name is None else f"{name}-{chosen}"
                rows.to(chosen, key=key, value=value, headers=headers, circular=circular, name=named)
            return None
        if topics is not None:
            raise TopologyException(
                f'{call_site}: topics= of to({topic!r}) is for a topic by row, to(F.col("topic"), topics=[...])'
            )
        check_topic(topic, call_site)
        if not isinstance(circular, bool):
            raise TopologyException(f"{call_site}: circular={circular!r} of to({topic!r}) must be True or False")
        if not self._rows.schema.fields:
            raise TopologyException(f"{call_site}: to({topic!r}) writes rows without columns")
        where = f"of to({topic!r})"
        _check_formats(where, key, value, call_site)
        if headers is not None and (not isinstance(headers, str) or not headers.strip()):
            raise TopologyException(
                f"{call_site}: headers={headers!r} {where} is the name of a column; make it first: "
                'withColumn("headers", F.array(F.struct(F.lit("source").alias("key"), '
                'F.lit("web").cast("binary").alias("value"))))'
            )
        node = self._rows.node
        if key is not None and isinstance(node, TableJoinNode) and node.by:
            raise TopologyException(f"{call_site}: key= of to({topic!r}) {KEY_OF_PAIRS}")
        self._record.end(
            SinkNode(
                given=self._rows,
                call_site=call_site,
                name=check_name(name, call_site),
                topic=topic,
                key=self._by_name(key),
                value=self._by_name(value),
                headers=self._by_name(headers),
                circular=circular,
            )
        )
        return None

    def _by_topic(self, column: Column, topics: Any, call_site: CallSite) -> Iterator[tuple[str, Any]]:
        """Yield each topic, and the rows whose column names it."""
        if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
            raise TopologyException(
                f'{call_site}: to() with a Column takes topics=["a", "b"], all topics that it may name, not {topics!r}'
            )
        for place, chosen in enumerate(topics):
            check_topic(chosen, call_site)
            if chosen in topics[:place]:
                raise TopologyException(f"{call_site}: topics= of to() has {chosen!r} twice")
        listed = ", ".join(topics)
        given = F.coalesce(column.cast("string"), F.lit("null"))
        unknown = F.raise_error(
            F.concat(F.lit("to(): a row is for topic "), given, F.lit(f", and topics= has {listed}"))
        )
        for chosen in topics:
            yield chosen, self.where(F.when(column.isin(*topics), column == chosen).otherwise(unknown))

    def _by_name(self, given: Any) -> Any:
        """Return a column's name, or a format of a column, as the column is called: Spark finds names in any case."""
        name = given if isinstance(given, str) else getattr(given, "column", None)
        names = self._rows.schema.names
        if name is None or name in names or self._record.spark.conf.get("spark.sql.caseSensitive") == "true":
            return given
        found = next((one for one in names if one.lower() == name.lower()), name)
        return found if isinstance(given, str) else dataclasses.replace(given, column=found)

    def show(  # type: ignore[override]
        self, n: int = 20, truncate: bool | int = True, *, name: str | None = None
    ) -> None:
        """Print the first rows of each micro-batch on the driver, as ``DataFrame.show``, once it is committed.

        For the first ten minutes with a topic: what is printed is not written anywhere.

        Args:
            n: rows of a micro-batch at most, up to 1,000.
            truncate: True to cut cells off after 20 characters, a number for another width, False for 1,000.
            name: its name in ``describe()``.

        Raises:
            TopologyException: an argument is of the wrong kind.
        """
        call_site = find_call_site()
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MOST_SHOWN:
            raise TopologyException(f"{call_site}: n={n!r} of show() must be a number from 1 to {_MOST_SHOWN:,}")
        if not isinstance(truncate, int) or truncate < 0:
            raise TopologyException(f"{call_site}: truncate={truncate!r} of show() must be True, False or a width")
        width = _SHOWN_WIDTH if truncate is True else int(truncate) or _MOST_SHOWN
        show = Show(n, min(width, _MOST_SHOWN), call_site, f"show({n})")
        # Bytes are read as text, as those of Kafka's keys and values mostly are.
        output = analyzed(self._rows.frame).output()
        shown = without_kafka(self._rows.schema).fields
        columns = [
            F.make_valid_utf8(as_column(output.apply(place)).cast("string")).alias(field.name)
            for place, field in enumerate(self._rows.schema)
            if field in shown
        ]
        with spark_errors(call_site):
            texts = with_rows(self._rows, DataFrame.select(self, *columns), unsaid=1)
        self._record.use(self._rows)
        self._record.end(ActionNode(given=texts, call_site=call_site, name=check_name(name, call_site), action=show))

    def _act(self, action: Show | Foreach | ForeachBatch, name: str | None, call_site: CallSite) -> None:
        shown = [str(field.name) for field in without_kafka(self._rows.schema)]
        alike = next((name for name, free in zip(shown, unique(shown), strict=True) if name != free), None)
        if alike is not None:
            raise TopologyException(
                f"{call_site}: {action.text} gets two columns {alike!r}, or names that differ in case only; give one "
                "of them another name with alias(), or drop() it"
            )
        end = ActionNode(given=self._rows, call_site=call_site, name=check_name(name, call_site), action=action)
        self._record.end(end)


def _check_formats(where: str, key: Any, value: Any, call_site: CallSite) -> None:
    """Refuse a key or a value that cannot be written.

    Raises:
        TopologyException: it is no format, or one that is for reading; names ``where``.
    """
    for place, form in (("key", key), ("value", value)):
        column = place == "key" and isinstance(form, str) and bool(form.strip())
        if form is not None and not column and not isinstance(form, Format):
            hint = f'String("{form}")' if isinstance(form, str) else "String(...), Json(...), Avro(...) or Raw(...)"
            raise TopologyException(f"{call_site}: {place}= {where} takes a format such as {hint}, not {form!r}")
    if isinstance(key, Format) and not key.has_fixed_bytes:
        raise TopologyException(
            f"{call_site}: key={type(key).__name__}(...) {where} has no fixed bytes, so equal keys could go to "
            'different partitions; use String("column"), Integer, Long or Raw, or leave key= out'
        )
    if value is not None and value.schema_is_for_reading and value.schema is not None:
        kind = type(value).__name__
        raise TopologyException(
            f"{call_site}: value={format_text(value)} {where} has a schema, which is for reading: columns are written "
            f"as they are; select() and cast() them before, and write value={kind}()"
        )
