"""StreamsBuilder: where a topology begins."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NoReturn

from sparkrelay.catalyst.frames import attributes
from sparkrelay.client.topic_schemas import TopicSchemas, is_framed
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import TopologyException
from sparkrelay.records.custom_format import CustomFormat
from sparkrelay.records.format import Format
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.frames import frame_at
from sparkrelay.topology.global_table import GlobalKTable
from sparkrelay.topology.naming import check_name, check_topic
from sparkrelay.topology.nodes import SourceNode
from sparkrelay.topology.public_calls import public_calls
from sparkrelay.topology.reading.calls import Call
from sparkrelay.topology.reading.sql import read_sql
from sparkrelay.topology.reading.tables import keep_newest, key_places
from sparkrelay.topology.record import Record, begin
from sparkrelay.topology.refusals import remedy
from sparkrelay.topology.source_columns import source_columns
from sparkrelay.topology.spread import Spread
from sparkrelay.topology.subtopologies import build_subtopologies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.rows import Rows
    from sparkrelay.topology.streams import KStream, KTable
    from sparkrelay.topology.topology import Topology

_SUPPORTED: Final = frozenset({"stream", "table", "global_table", "sql", "build"})


@public_calls
class StreamsBuilder:
    """Takes a pipeline down, step by step.

    Usage::

        builder = StreamsBuilder()
        flights = builder.stream("flights", key=String("carrier"), value=Json("dep_delay double"))
        flights.groupBy("carrier").agg(F.avg("dep_delay").alias("mean")).to("delays", value=Json())
        topology = builder.build()
    """

    def __init__(
        self, spark: SparkSession | None = None, *, config: Mapping[str, Any] | StreamsConfig | None = None
    ) -> None:
        """Begin a pipeline.

        Args:
            spark: the session in which it is analysed; by default the active one, or a new one.
            config: the settings of its instances, where formats take their columns from a registry: ``Avro()``.

        Raises:
            ConfigException: a setting is not valid.
        """
        self._record = Record(spark or _session())
        self._config = config if config is None or isinstance(config, StreamsConfig) else _settings(config)

    @functools.cached_property
    def _schemas(self) -> TopicSchemas:
        return TopicSchemas(self._config, "set it, and give it to the builder, StreamsBuilder(config=config)")

    def stream(
        self,
        topics: str | Sequence[str],
        *,
        key: Format | None = None,
        value: Format | None = None,
        timestamp: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """Read topics as a stream.

        Without formats the columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
        timestampType, headers. With one they are the decoded fields, and those columns in a struct ``kafka``. Tables
        have no such struct.

        Args:
            topics: a topic or several, which must exist. To be grouped without a repartition topic between, several
                must have equally many partitions.
            key: format of the message key, such as ``String("carrier")``. With it, grouping by that column needs no
                repartition topic.
            value: format of the message value, such as ``Json("user string, amount double")``.
            timestamp: decoded column that gives the event time: a timestamp, a date, or a bigint of milliseconds since
                1970. By default, and where it is null, the record's own timestamp. A record with a time before 1970
                does not decode: Kafka has no such timestamps.
            name: the stream's name, which the names of its stores begin with; by default its topics.

        Raises:
            TopologyException: an argument is missing or of the wrong kind.
        """
        call_site = find_call_site()
        rows = self._source("stream", topics, key, value, timestamp, name, call_site)
        self._record.source_view(name, topics, rows)
        made: KStream = frame_at(self._record, rows)
        return made

    def _source(  # noqa: PLR0917 - as they are written
        self, method: str, topics: Any, key: Any, value: Any, timestamp: Any, name: Any, call_site: CallSite
    ) -> Rows:
        topics = _topics(topics, call_site)
        node = SourceNode(
            call_site=call_site,
            text=f"{method}(...)",
            topics=topics,
            key=self._with_schema(_key_format(method, key, call_site), topics, "key", call_site),
            value=self._with_schema(_value_format(method, value, call_site), topics, "value", call_site),
            timestamp=_timestamp(method, timestamp, key, value, call_site),
            name=check_name(name, call_site),
        )
        columns = source_columns(node)
        whole = None if node.key is None or node.key.table_key_refusal is not None else node.key.known_columns("key")[0]
        spread = Spread.of_source(columns.names, whole, raw=node.key is None and node.value is None)
        return begin(self._record.add(node, attributes(columns), spread))

    def _with_schema(self, form: Format | None, topics: Sequence[str], place: str, call_site: CallSite) -> Any:
        """Return a format with its schema: the registry's, where it has none of its own."""
        if not is_framed(form) or form.schema is not None:
            return form
        return self._schemas.read(form, topics, place, str(call_site))

    def table(
        self,
        topic: str,
        *,
        key: Format,
        value: Format,
        timestamp: str | None = None,
        name: str | None = None,
        logged: bool = True,
        history: str | None = None,
    ) -> KTable:
        """Read a topic as a table: the newest row of each key, as ``StreamsBuilder.table`` of Kafka Streams.

        A record without a value deletes its key's row; one without a key is skipped. A record that leaves the row
        unchanged is not passed on.

        The newest row is the one that comes last. With ``history`` it is the one with the latest timestamp, and the
        table also knows what was there before it, for so long (KIP-889): a stream that looks into it finds what was
        there at each row's own time. A row that comes late takes its place among those, and changes the table itself
        only if none is newer (KIP-914).

        Args:
            topic: which must exist; usually a compacted one.
            key: format of the message key, such as ``String("user")``.
            value: format of the message value, such as ``Json("name string, country string")``.
            timestamp: as of :meth:`stream`.
            name: the store's name; its changelog is ``<application.id>-<name>-changelog``.
            logged: False for a store without changelog, as in ``GroupedStream.agg``: where the task goes on elsewhere,
                the table is empty, and nothing reads the topic once more.
            history: how far back rows are known, such as ``"1 hour"``, from the newest timestamp of a row on. A row
                that comes later than that, by what had come before its micro-batch, is left out.

        Raises:
            TopologyException: an argument is missing or of the wrong kind.
        """
        call_site = find_call_site()
        kept = self._table("table", topic, key, value, timestamp, name, logged, call_site, history)
        self._record.source_view(name, topic, kept)
        made: KTable = frame_at(self._record, kept)
        return made

    def global_table(
        self, topic: str, *, key: Format, value: Format, timestamp: str | None = None, name: str | None = None
    ) -> GlobalKTable:
        """Read a whole topic as a table in every process, as ``StreamsBuilder.globalTable`` of Kafka Streams.

        Any stream can look into it with ``join``, by any column, without a repartition topic and whatever its
        partition count. Each process reads all partitions before it takes a task, and follows them from then on, by
        itself: a row finds what the process has read by then, not what was there at the row's time. What it has read
        stays in its ``state.dir``.

        Args:
            topic: which must exist; usually a compacted one, and small enough for each process's disk.
            key: as of :meth:`table`.
            value: as of :meth:`table`.
            timestamp: as of :meth:`stream`.
            name: the store's name.

        Raises:
            TopologyException: an argument is missing or of the wrong kind.
        """
        call_site = find_call_site()
        kept = self._table("global_table", topic, key, value, timestamp, name, False, call_site)
        self._record.source_view(name, topic, kept)
        return GlobalKTable(self._record, kept)

    def _table(  # noqa: PLR0917 - as they are written
        self,
        method: str,
        topic: Any,
        key: Any,
        value: Any,
        timestamp: Any,
        name: Any,
        logged: Any,
        call_site: CallSite,
        history: Any = None,
    ) -> Rows:
        if not isinstance(topic, str):
            raise TopologyException(
                f"{call_site}: {method}() takes one topic, not {topic!r}: which of two rows is the newer one would be "
                "chance"
            )
        if key is None or value is None:
            raise TopologyException(
                f'{call_site}: {method}() takes both formats, such as key=String("user"), value=Json("name string")'
            )
        rows = self._source(method, topic, key, value, timestamp, None, call_site)
        is_global = method == "global_table"
        places = key_places(rows)
        assert places is not None, "a key format that is taken here has a column"
        return keep_newest(
            self._record,
            rows,
            places,
            name,
            logged,
            f'{method}("{topic}")',
            call_site,
            is_global=is_global,
            of_topic=not is_global,
            history=history,
        )

    def sql(self, query: str, *, name: str | None = None, logged: bool = True, **frames: Any) -> Any:
        """Return what a SQL query says, as a KStream or a KTable: Spark's dialect, with ``WITH`` and pipe syntax.

        In it, streams and tables of this builder are called by their ``name=`` or topic; others, and results of steps,
        by ``createOrReplaceTempView("name")``, or as ``{name}`` for a keyword of this call.

        Args:
            query: one query.
            name: of the store of its grouping, join or other stateful step, if it has one of them.
            logged: False for a store without changelog, as in ``GroupedStream.agg``.
            frames: streams, tables and DataFrames that ``{name}`` stands for.

        Raises:
            TopologyException: Spark does not understand it, or something in it cannot be done with streams and tables.
        """
        call_site = find_call_site()
        if not isinstance(query, str) or not query.strip():
            raise TopologyException(f"{call_site}: sql() takes the text of a query, not {query!r}")
        call = Call(call_site, "sql", name=check_name(name, call_site), logged=logged)
        return frame_at(self._record, read_sql(self._record, call, query, frames))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TopologyException(
            f"{find_call_site()}: StreamsBuilder has no {name}(): {remedy('StreamsBuilder', name, _SUPPORTED)}"
        )

    def build(self) -> Topology:
        """Check what was written and return it as a topology.

        Raises:
            TopologyException: the result of a step is not used, names clash, or topics form a cycle; names the line.
        """
        return build_subtopologies(self._record)


def _settings(config: Mapping[str, Any]) -> StreamsConfig:
    """Return settings of which those that name an application may be missing."""
    named = {"application.id": "pipeline", "bootstrap.servers": "none:9092"}
    return StreamsConfig.from_dict({**named, **config})


def _session() -> SparkSession:
    """Return the active session, or a new one."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loaded where it is used

    from sparkrelay.runtime.spark.session import spark_session  # noqa: PLC0415 - likewise

    return SparkSession.getActiveSession() or spark_session("sparkrelay")


def _topics(topics: Any, call_site: CallSite) -> tuple[str, ...]:
    listed = [topics] if isinstance(topics, str) else topics
    if not isinstance(listed, list | tuple | set | frozenset) or not listed:
        raise TopologyException(f"{call_site}: stream() takes a topic or a list of topics, not {topics!r}")
    checked = tuple(check_topic(topic, call_site) for topic in listed)
    if len(set(checked)) < len(checked):
        raise TopologyException(f"{call_site}: stream({list(checked)}) names a topic twice")
    return tuple(sorted(checked)) if isinstance(listed, set | frozenset) else checked


def _key_format(method: str, key: Any, call_site: CallSite) -> Format | None:
    form = _format(method, "key", key, call_site)
    refusal = None if form is None else form.key_refusal if method == "stream" else form.table_key_refusal
    if refusal is not None:
        raise TopologyException(
            f"{call_site}: key={type(form).__name__}(...) of {method}() is not supported: {refusal}"
        )
    return form


def _value_format(method: str, value: Any, call_site: CallSite) -> Format | None:
    form = _format(method, "value", value, call_site)
    if form is not None and form.schema_is_for_reading and form.schema is None:
        kind = type(form).__name__
        raise TopologyException(
            f'{call_site}: value={kind}() of {method}() needs a schema, such as {kind}("user string, amount double")'
        )
    return form


def _format(method: str, place: str, form: Any, call_site: CallSite) -> Format | None:
    if form is None:
        return None
    if isinstance(form, Format):
        if isinstance(form, CustomFormat) and " at 0x" in form.fingerprint:
            raise TopologyException(
                f"{call_site}: {place}={form.fingerprint} of {method}() holds an object whose text is not stable, and "
                f"the instances of an application must agree on their formats; give {type(form).__name__} a property "
                "fingerprint"
            )
        return form
    hint = " (an instance, with parentheses)" if isinstance(form, type) else ""
    raise TopologyException(
        f"{call_site}: {place}= of {method}() takes a format such as String(), Json(schema), Avro(schema) or "
        f"Raw(){hint}, not {form!r}"
    )


def _timestamp(method: str, timestamp: Any, key: Any, value: Any, call_site: CallSite) -> str | None:
    if timestamp is None:
        return None
    if not isinstance(timestamp, str) or not timestamp:
        raise TopologyException(f"{call_site}: timestamp= of {method}() takes a column's name, not {timestamp!r}")
    if key is None and value is None:
        raise TopologyException(
            f"{call_site}: timestamp={timestamp!r} names a decoded column, but {method}() has neither key= nor value="
        )
    return timestamp
