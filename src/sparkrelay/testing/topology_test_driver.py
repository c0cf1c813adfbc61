"""Tests a pipeline without a broker: the real legs in the real workers, on topics that are files.

Like Kafka Streams' ``TopologyTestDriver``. Spark runs the pipeline's steps, its Python workers decode, aggregate and
encode, and state is kept in stores with changelogs; only the group, the network and the wall clock are missing. So a
test of a few rows shows what the pipeline does in production while one instance has all tasks.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

import pyarrow as pa

from sparkrelay.client.file_log import LOG_DIRECTORY, FileLog
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import UnknownStateStoreException
from sparkrelay.records.formats import Json
from sparkrelay.runtime.compile.legs import LegCompiler
from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
from sparkrelay.runtime.compile.queryable_stores import QueryableStores
from sparkrelay.runtime.compile.sink_plan import plain_format
from sparkrelay.runtime.contract.client_settings import worker_settings
from sparkrelay.runtime.spark.collected_frames import CollectedFrames
from sparkrelay.runtime.spark.executor_target import ExecutorTarget
from sparkrelay.runtime.spark.session import local_slots
from sparkrelay.runtime.topics.configured_topology import as_configured
from sparkrelay.runtime.topics.layout import lay_out
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.state import TaskStore
from sparkrelay.testing.driver_tasks import DriverTasks
from sparkrelay.testing.test_topics import TestInputTopic, TestOutputTopic, TopicFiles

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from sparkrelay.records.formats import Format
    from sparkrelay.topology import Topology

_SETTINGS: Final = {"application.id": "topology-test-driver", "bootstrap.servers": "no-broker:9092"}


class TopologyTestDriver:
    """Runs a topology on rows that a test pipes in. Use it as a context manager.

    Usage::

        def test_counts(spark):
            with TopologyTestDriver(builder.build(), spark=spark) as driver:
                orders = driver.create_input_topic("orders")
                orders.pipe_input("ada", {"amount": 3})
                orders.pipe_input("ada", {"amount": 4})
                assert driver.create_output_topic("totals").read_rows()[-1] == {"user": "ada", "total": 7}

    Args:
        topology: the result of ``StreamsBuilder.build()``.
        config: settings of the instance, such as ``deserialization.exception.handler``. Those about brokers, the group
            or threads have no effect.
        spark: a local session. Use one for all tests: it takes seconds to start.
        partitions: number of partitions of each topic, and so of tasks.
        batch: ``"record"`` processes each record as it is piped in, in its own micro-batch; ``"all"`` processes all
            piped records on the next read or call of :meth:`process`.
        wall_clock_time: time at the beginning, in milliseconds since 1970: the timestamp of records without one.

    Raises:
        ValueError: ``batch`` or ``partitions`` is not valid.
        TopologyException: a column does not exist or a step is not possible, as when an instance starts.
    """

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any] | None = None,
        *,
        spark: SparkSession,
        partitions: int = 1,
        batch: Literal["record", "all"] = "record",
        wall_clock_time: int = 0,
    ) -> None:
        if batch not in {"record", "all"}:
            raise ValueError(f"batch={batch!r} must be 'record' or 'all'")
        if partitions < 1:
            raise ValueError(f"partitions={partitions} must be 1 or more")
        settings = StreamsConfig.from_dict({**_SETTINGS, **(config or {})})
        self._topology = topology = as_configured(topology, settings)
        self._closed = False
        self.batch = batch
        self._now_ms = wall_clock_time
        names = TopicNames(settings.application_id)
        global_topics = [topic for leg in topology.global_tables for topic in leg.source.topics]
        self._dead_letters = letters = settings.errors_dead_letter_queue_topic_name
        written = (*topology.sink_topics, *(() if letters is None else (letters,)))
        topics = dict.fromkeys((*topology.source_topics, *written, *global_topics), partitions)
        target = ExecutorTarget(spark, spark_partitions=1, slots=local_slots(spark))
        folder = Path(tempfile.mkdtemp(prefix="topology-test-driver-"))
        try:
            log = FileLog(folder / "topics")
            client = worker_settings(settings, "topology-test-driver")
            client[LOG_DIRECTORY] = str(folder / "topics")
            legs = (*topology.upstream_first, *topology.global_tables)
            frames = CollectedFrames(lambda: self._now_ms / 1000)
            compiler = LegCompiler(target, settings, legs, names=names, client=client, frames=frames)
            self._plans = PreparedLegs(compiler, topology.upstream_first)
            self._global_plans = PreparedLegs(compiler, topology.global_tables)
            self._stores = QueryableStores(topology, (self._plans, self._global_plans))
            self._tasks = DriverTasks(
                config=settings,
                layout=lay_out(topology, names, topics, dead_letters=letters),
                plans=self._plans,
                global_tables=(topology.global_tables, self._global_plans),
                partitions=partitions,
                target=target,
                log=log,
                client=client,
                state_dir=folder / "state",
                now_ms=lambda: self._now_ms,
            )
            self._tasks.open()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._folder, self._log = folder, log
        self._files = TopicFiles(log, partitions, self.process, lambda: self._now_ms, lambda: self.batch == "all")

    def create_input_topic(
        self, topic: str, *, key: Format | None = None, value: Format | None = None
    ) -> TestInputTopic:
        """Return a topic to pipe records into, by default in the pipeline's own formats.

        Raises:
            ValueError: the pipeline does not read the topic.
        """
        legs = (*self._topology.legs, *self._topology.global_tables)
        sources = [leg.source for leg in legs if not leg.source.internal and topic in leg.source.topics]
        if not sources:
            read = {topic for leg in legs if not leg.source.internal for topic in leg.source.topics}
            raise ValueError(f"the pipeline does not read {topic!r}, but {_list(read)}")
        return TestInputTopic(topic, key or sources[0].key, value or sources[0].value, self._files)

    def create_output_topic(
        self, topic: str, *, key: Format | None = None, value: Format | None = None
    ) -> TestOutputTopic:
        """Return a topic to read records from, by default with values in the pipeline's own format.

        Keys are bytes unless ``to()`` or ``key`` names a format; so are the values of the dead letter topic.

        Raises:
            ValueError: the pipeline does not write the topic.
        """
        if topic == self._dead_letters:
            return TestOutputTopic(topic, key, value, self._files)
        sinks = {leg.sink.topic: leg for leg in self._topology.legs if leg.sink is not None and not leg.sink.internal}
        if topic not in sinks:
            raise ValueError(f"the pipeline does not write {topic!r}, but {_list(sinks)}")
        leg = sinks[topic]
        sink = leg.sink
        assert sink is not None
        assert not isinstance(sink.key, tuple), "only repartition topics have keys of several columns"
        written = plain_format(self._plans.output(leg.id)[sink.key]) if isinstance(sink.key, str) else sink.key
        # Rows of Kafka's own columns have no format; others are JSON by default.
        form = value or sink.value or (None if leg.passes_kafka_columns else Json())
        return TestOutputTopic(topic, key or written, form, self._files)

    def process(self) -> None:
        """Process all piped records, through the repartition topics to the end.

        Raises:
            SparkRelayError: the error of an instance, for example a record that cannot be decoded.
        """
        self._require_open()
        self._tasks.process()

    def store(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a store, grouping columns and results, in key order.

        Raises:
            ValueError: there is no such store, or a row has a time outside the range of ``datetime``.
        """
        try:
            spec = self._stores.spec(name)
        except UnknownStateStoreException as error:
            raise ValueError(str(error)) from None
        self.process()
        rows = []
        is_global = self._stores.is_global(name)
        tasks = [self._tasks.global_table(name)] if is_global else self._tasks.directories(spec.subtopology)
        for directory in tasks:
            store = TaskStore.open(directory, create=False)
            try:
                start, stop = spec.layout.span(store.header.expired_by(spec.store))
                if batches := list(store.scan(spec.store, start=start, stop=stop)):
                    rows += _as_dicts(name, spec.layout.rows(pa.concat_batches(batches)))
            finally:
                store.close(clean=False)
        return rows

    def advance_wall_clock_time(self, advance: dt.timedelta) -> None:
        """Advance the clock: it is the timestamp of records without one, idle windows may close, and timers fire.

        The collected rows of ``join(..., refresh=...)`` age, too.

        Raises:
            ValueError: ``advance`` is negative.
        """
        if advance.total_seconds() < 0:
            raise ValueError(f"advance={advance} must not be negative: time does not go back")
        self._now_ms += round(advance.total_seconds() * 1000)
        if self.batch == "record":
            self.process()

    def restart(self, *, from_changelog: bool = False) -> None:
        """Stop the instance and start another one on its local state, or ``from_changelog`` without that state."""
        self.process()
        self._tasks.close()
        if from_changelog:
            self._tasks.remove_state()
        self._tasks.open()

    def clear(self, *, wall_clock_time: int = 0) -> None:
        """Remove all records and all state, so that the next test finds the driver as if it were new.

        A pipeline is planned once for a driver, which takes longer than a test of a few rows.

        Args:
            wall_clock_time: as for a new one.
        """
        self._require_open()
        self._tasks.close()
        self._tasks.clear()
        self._now_ms = wall_clock_time
        self._tasks.open()

    def close(self) -> None:
        """Stop the instance and remove its files."""
        self._closed = True
        try:
            self._tasks.close()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("the test driver is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _list(names: Any) -> str:
    return ", ".join(map(repr, sorted(names))) or "nothing"


def _as_dicts(store: str, rows: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return cast("list[dict[str, Any]]", rows.to_pylist())
    except (OverflowError, ValueError) as error:
        raise ValueError(
            f"store {store!r} has a row with a time outside the years 1 to 9999, which a datetime cannot hold "
            f"({error}): read the rows from a topic of the pipeline, where times are JSON"
        ) from error
