"""StreamsBuilder: where a topology begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import TopologyException
from sparkrelay.topology.building.subtopologies import build_subtopologies
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.frames import frame_at
from sparkrelay.topology.global_table import GlobalKTable
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.public_calls import public_calls
from sparkrelay.topology.reading.calls import Call
from sparkrelay.topology.reading.sources import source
from sparkrelay.topology.reading.sql import read_sql
from sparkrelay.topology.reading.structured_streaming import added, read_frame
from sparkrelay.topology.reading.tables import keep_newest, key_places
from sparkrelay.topology.record import Record
from sparkrelay.topology.refusals import remedy
from sparkrelay.topology.script import SqlScript

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from sparkrelay.records.format import Format
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.rows import Rows
    from sparkrelay.topology.streams import KStream, KTable
    from sparkrelay.topology.topology import Topology

_SUPPORTED: Final = frozenset({"add", "script", "stream", "table", "global_table", "sql", "build"})


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
        settings = config if config is None or isinstance(config, StreamsConfig) else _settings(config)
        self._record = Record(spark or _session(), settings)

    def stream(
        self,
        topics: str | Sequence[str],
        *,
        key: Format | None = None,
        value: Format | None = None,
        timestamp: str | None = None,
        name: str | None = None,
        starting: Any = None,
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
            starting: where the topics are read first, while the group has no offsets of them: ``"earliest"``,
                ``"latest"``, ``"24 hours ago"``, a datetime, or its text such as ``"2026-11-28T12:00:00Z"`` (the first
                record of that time or later); an offset for each partition, ``{0: 23, 1: "earliest"}``; or a dict of
                topic -> one of these. By default the setting ``auto.offset.reset`` says so.

        Raises:
            TopologyException: an argument is missing or of the wrong kind.
        """
        call_site = find_call_site()
        rows = source(self._record, "stream", topics, key, value, timestamp, name, call_site, starting)
        self._record.source_view(name, topics, rows)
        made: KStream = frame_at(self._record, rows)
        return made

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
        starting: Any = None,
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
            starting: as of :meth:`stream`; ``"earliest"`` where ``auto.offset.reset`` is ``latest`` for the streams.

        Raises:
            TopologyException: an argument is missing or of the wrong kind.
        """
        call_site = find_call_site()
        kept = self._table("table", topic, key, value, timestamp, name, logged, call_site, history, starting)
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
        starting: Any = None,
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
        rows = source(self._record, method, topic, key, value, timestamp, None, call_site, starting)
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

    def _read_sql(self, text: str, parsed: Any) -> Any:
        """Return what a query says that stands in a script's statement."""
        call = Call(find_call_site(), "SELECT")
        return frame_at(self._record, read_sql(self._record, call, text, {}, parsed))

    def script(self, text: str, *, file: str = "script.sql") -> dict[str, str]:
        """Write down a pipeline in SQL: ``CREATE STREAM``, ``CREATE TABLE``, ``CREATE VIEW`` and ``INSERT INTO``.

        See docs/how-to/sql.md. Streams and tables of a builder's earlier calls are there, too.

        Args:
            text: the statements, each but the last with a semicolon behind it.
            file: its name, for messages; schemas of other files are found beside it.

        Returns:
            What ``SET`` has set, but for Spark's own settings: settings of an instance.

        Raises:
            TopologyException: Spark does not understand a statement, or it cannot be done; names its line.
        """
        if not isinstance(text, str) or not isinstance(file, str):
            raise TopologyException(f"{find_call_site()}: script() takes the text of statements, not {text!r}")
        script = SqlScript(self, file)
        script.run(text)
        return script.settings

    def add(
        self, frame: Any, topic: str | None = None, *, outputMode: str = "append", queryName: str | None = None
    ) -> Any:
        """Take a DataFrame over ``spark.readStream.format("sparkrelay")``; return it as a KStream or a KTable.

        With a topic its rows are written there, as ``writeStream`` writes them with Spark's Kafka sink: the column
        ``value``, and ``key`` and ``headers`` if they are there. Rows without a column ``value`` are written as JSON,
        as by :meth:`KStream.to`.

        Args:
            frame: the DataFrame.
            topic: where its rows go; None: what is returned goes on.
            outputMode: as of ``writeStream``, ``"append"`` or ``"update"``.
            queryName: the sink's name in ``describe()``.

        Raises:
            TopologyException: an argument is of the wrong kind, or something in the DataFrame cannot be done here.
        """
        call_site = find_call_site()
        rows = read_frame(self._record, Call(call_site, "add"), frame, outputMode)
        return added(frame_at(self._record, rows), topic, outputMode, queryName, call_site)

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
