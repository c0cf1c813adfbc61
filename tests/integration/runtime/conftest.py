"""Instances that are stopped when their test ends, and readers of what they wrote."""

import contextlib
import json
import uuid

import pytest
from tests.topics import following
from tests.waiting import LONG


def new_application_id():
    """Return a name that no other test has."""
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def application_id():
    """A name that no other test has; two instances of one test share it."""
    return new_application_id()


@contextlib.contextmanager
def _instances(spark, kafka, folder, application_id):
    """Give a function that makes instances, and stop them in the end."""
    from sparkrelay import KafkaStreams

    made = []

    def make(builder, config=None, *, quiet=False):
        settings = {
            "application.id": application_id,
            "bootstrap.servers": kafka.bootstrap_servers,
            "state.dir": str(folder / "state"),
            "session.timeout.ms": 6000,
            "poll.ms": 20,
            **(config or {}),
        }
        made.append(KafkaStreams(builder.build(), settings, spark=spark, quiet=quiet))
        # Instances that are processes of their own have theirs.
        made[-1]._context.prewarm = False
        return made[-1]

    yield make
    for streams in made:
        assert streams.stop(LONG), f"{streams.state} after {LONG} s of stopping"


@pytest.fixture
def instance(spark, kafka, tmp_path, application_id):
    """`instance(builder, config, quiet=False)` makes a KafkaStreams; names of settings are written as in Kafka."""
    with _instances(spark, kafka, tmp_path, application_id) as make:
        yield make


@pytest.fixture(scope="module")
def module_instance(spark, kafka, tmp_path_factory):
    """`instance` for a whole module, whose tests only look at what it makes."""
    with _instances(spark, kafka, tmp_path_factory.mktemp("instance"), new_application_id()) as make:
        yield make


def active(streams):
    """Return the ids of the tasks that run on an instance."""
    return {
        task.task_id
        for thread in streams.metadata_for_local_threads()
        for task in thread.active_tasks
        if task.state == "running"
    }


def wait_for_every_job(spark):
    """Wait until Spark's status store, which a thread of its own fills, knows of all jobs that have begun."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)


def _read(value):
    return None if value is None else json.loads(value)


@pytest.fixture
def table(consumed):
    """`table(topic)` returns what a topic says in the end: key -> value, JSON read."""

    def read(topic):
        rows = {}
        for _, _, key, value in consumed(topic):
            rows[key] = _read(value)
        return rows

    return read


@pytest.fixture
def wait_for_table(kafka, wait_until):
    """`wait_for_table(topic, expected, streams)` waits until a topic says so, or the instance ends."""

    def wait(topic, expected, *instances):
        found = {}
        with following(kafka.bootstrap_servers, topic) as more, contextlib.suppress(AssertionError):

            def ended_or_there():
                found.update({message.key(): _read(message.value()) for message in more()})
                return found == expected or any(streams.exception() for streams in instances)

            wait_until(ended_or_there, "")
        assert [streams.exception() for streams in instances if streams.exception()] == []
        assert found == expected  # this says more than that it was waited for

    return wait


@pytest.fixture
def fails_with(wait_until):
    """`fails_with(streams, error, words)`: it goes to ERROR, saying so."""

    def check(streams, error, words):
        wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
        with pytest.raises(error, match=words):
            streams.awaitTermination(LONG)

    return check
