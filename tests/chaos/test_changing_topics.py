"""Source topics get partitions, or are deleted and created again, while producers write and instances are killed.

Pipelines without state, and those with a repartition topic of fixed width, continue: their results are exact. Others
refuse by name, and each way out that the error names gives exact results.
"""

import contextlib
import json
import random
import time
from collections import Counter

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions
from tests.chaos.instances import Succession
from tests.chaos.order_writer import Orders, writing
from tests.topics import following, read_to_end
from tests.waiting import LONG, wait_until

from sparkrelay.cli.app import run
from sparkrelay.devkafka.topics import create_topic, delete_topic

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1800)]

KILLS = 5
#: What the results continue by before an instance may be killed: some batches.
PROGRESS = 40
#: An instance notices new partitions, or a topic's new id, within about so many seconds.
NOTICED_SECONDS = 5


class Results:
    """The committed results, in their order in each partition.

    Attributes:
        rows: all of them.
        newest: user -> how many orders are counted and their sum.
    """

    def __init__(self, more):
        self._more = more
        self.rows = []
        self.newest = {}

    def read(self):
        """Read what was committed since; return how many rows there are."""
        for message in self._more():
            row = json.loads(message.value())
            self.rows.append(row)
            if "n" in row:
                self._check_rises(row)
        return len(self.rows)

    def _check_rises(self, row):
        before, _ = self.newest.get(row["user"], (0, 0))
        assert row["n"] > before, f"{row} was committed after n={before}: a count fell, or was committed twice"
        self.newest[row["user"]] = row["n"], row["total"]

    def start_over(self):
        """Take it that all users are counted anew from now on."""
        self.read()
        self.newest = {}


class Application:
    """One of the pipelines, with its topics and what was written to them."""

    def __init__(self, kind, kafka, admin, make_topic, folder, seed, results):
        self.servers, self._admin = kafka.bootstrap_servers, admin
        self.source = make_topic("orders", 2)
        self.out = make_topic("out", 2)
        self.partitions = 2
        self.dice = random.Random(f"{seed} {kind}")
        self.orders = Orders()
        topics = {"kind": kind, "orders": self.source, "out": self.out}
        self.results = Results(results.enter_context(following(self.servers, self.out)))
        self.instances = Succession(folder, kafka, "growing_instance.py", topics, {"max.batch.records": 60})

    def writing(self):
        return writing(self.servers, self.source, self.orders)

    def get_partition(self):
        """Give the source one more partition."""
        self.partitions += 1
        self._admin.create_partitions([NewPartitions(self.source, self.partitions)])[self.source].result(LONG)

    def delete_source(self):
        delete_topic(self.servers, self.source)

    def create_source(self):
        create_topic(self.servers, self.source, partitions=self.partitions)

    def copy_unread_to(self, topic, produce):
        """Copy to a topic what the group has not read of the source, each user's orders in their order; read it."""
        committed = self.committed()
        unread = [m for m in read_to_end(self.servers, self.source) if m.offset() >= committed[m.partition()]]
        unread.sort(key=lambda message: json.loads(message.value())["id"])
        produce(topic, [(message.key(), message.value()) for message in unread])
        self.source = topic
        self.instances.change_topics({"orders": topic})

    def newest_partition_is_written(self):
        return self.partitions - 1 in self.orders.partitions.values()

    def progress(self, instance):
        """Wait until results were committed, and then for a random part of a batch."""
        goal = self.results.read() + self.dice.randrange(PROGRESS, 4 * PROGRESS)
        self.wait(lambda: self.results.read() >= goal, "no results are committed", instance)
        self.pause(0.2)

    def pause(self, seconds):
        time.sleep(self.dice.uniform(0, seconds))

    def die_often(self):
        """Have instances begin where the one before was killed, and return one that runs."""
        for _ in range(KILLS // 2):
            doomed = self.instances.take().start()
            self.progress(doomed)
            self.kill(doomed)
        running = self.instances.take().start()
        self.progress(running)
        return running

    def is_refused(self, instance, named):
        """Start an instance, which ends with an error that has these words, and end its process."""
        error = instance.refusal()
        assert named in error, f"{error}\n{instance.tail()}"
        instance.close()

    def kill(self, instance):
        instance.kill(only_driver=self.dice.random() < 0.5)

    def wait(self, condition, complaint, instance):
        """Wait for a condition, or fail with what the instance logs."""
        wait_until(
            lambda: condition() or not instance.alive or instance.tasks()["state"] == "ERROR",
            lambda: f"{complaint}\n{instance.tail()}",
        )
        assert condition(), f"{complaint}, and it has ended\n{instance.tail()}"

    def wait_for_totals(self, expected, instance):
        """Wait until exactly these counts and sums are committed."""

        def reached():
            self.results.read()
            return self.results.newest == expected

        def complaint():
            newest = self.results.newest
            wrong = {user: (newest.get(user), right) for user, right in expected.items() if newest.get(user) != right}
            return f"committed and expected: {wrong}"

        wait_until(
            lambda: reached() or not instance.alive or instance.tasks()["state"] == "ERROR",
            lambda: f"{complaint()}\n{instance.tail()}",
        )
        assert reached(), f"{complaint()}\n{instance.tail()}"

    def command(self, *words):
        """Run a command of `sparkrelay` as soon as the group has no members any more."""
        name, *rest = words
        subcommand = rest[:1] if name == "offsets" else []
        options = rest[len(subcommand) :]
        where = ["--application-id", self.instances.application_id, "--bootstrap-servers", self.servers]
        arguments = [name, *subcommand, *where, *options, "--execute"]
        wait_until(lambda: run(arguments) == 0, f"sparkrelay {' '.join(arguments)} is refused")

    def reset(self):
        self.command("reset", "--state-dir", str(self.instances.state))
        self.results.start_over()

    def committed(self):
        """Return the group's offset of each partition of the source."""
        group = self.instances.application_id
        source = [TopicPartition(self.source, number) for number in range(self.partitions)]
        (found,) = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, source)]).values()
        # Without a committed offset it is negative.
        return {at.partition: max(at.offset, 0) for at in found.result(LONG).topic_partitions}

    def close(self):
        self.instances.close()


@pytest.fixture
def application(kafka, kafka_admin, make_topic, tmp_path, seed):
    """`application(kind)` makes one of the pipelines of `growing_instance.py`."""
    with contextlib.ExitStack() as opened:

        def make(kind):
            made = Application(kind, kafka, kafka_admin, make_topic, tmp_path, seed, opened)
            return opened.enter_context(contextlib.closing(made))

        yield make


@pytest.mark.parametrize("kind", ["stateless", "repartitioned"])
def test_results_are_exact_while_the_source_gets_partitions(kind, application):
    app = application(kind)
    with app.writing():
        for kill in range(KILLS):
            doomed = app.instances.take().start()
            app.progress(doomed)
            if kill % 2 == 0:
                app.get_partition()
                app.pause(NOTICED_SECONDS)
            app.kill(doomed)
        last = app.instances.last()
        app.progress(last)
        app.get_partition()
        app.wait(app.newest_partition_is_written, "no order is written to the newest partition", last)
        app.progress(last)
    if kind == "stateless":
        count = len(app.orders.ids)
        app.wait(lambda: app.results.read() >= count, f"not all of {count} orders are in the results", last)
    else:
        app.wait_for_totals(app.orders.newest(), last)
    assert last.stop() == "stopped NOT_RUNNING"
    app.results.read()
    if kind == "stateless":
        assert Counter(row["id"] for row in app.results.rows) == Counter(app.orders.ids)
    assert set(app.orders.partitions.values()) == set(range(app.partitions))


@pytest.mark.parametrize("way_out", ["reset", "copy"])
def test_no_count_falls_where_the_source_of_a_state_gets_partitions(way_out, application, produce, make_topic):
    app = application("stateful")
    with app.writing():
        doomed = app.die_often()
        app.get_partition()
        app.pause(NOTICED_SECONDS)
        # It may have ended in ERROR by now.
        app.kill(doomed)
        wait_until(app.newest_partition_is_written, "no order is written to the newest partition")
    named = f"source topic '{app.source}' has 3 partitions now, not 2"
    for _ in range(2):
        app.is_refused(app.instances.take(), named)
    app.results.read()
    for row in app.results.rows:
        assert row["total"] == app.orders.totals(row["user"])[row["n"]], f"{row} does not count the first orders"
    if way_out == "reset":
        # Without it two tasks would count a key whose partition changed: its records are in two partitions.
        app.instances.change_topics({"kind": "repartitioned"})
        app.reset()
    else:
        app.copy_unread_to(make_topic("orders", 2), produce)
    with app.writing():
        last = app.die_often()
    app.wait_for_totals(app.orders.newest(), last)
    assert last.stop() == "stopped NOT_RUNNING"


@pytest.mark.parametrize("way_out", ["reset", "offsets set"])
def test_a_source_that_is_created_again_is_refused(way_out, application):
    app = application("stateful")
    with app.writing():
        running = app.die_often()
    for killed in (False, True):
        moment = app.dice.randrange(3) if killed else None
        counted = app.orders.last
        for step, change in enumerate((app.delete_source, app.create_source, lambda: None)):
            if step == moment:
                app.pause(NOTICED_SECONDS)
                app.kill(running)
            change()
        named = f"source topic '{app.source}' was deleted and created again"
        # Orders that were not read before are gone with the old topic.
        with app.writing():
            if not killed:
                assert named in running.error(), running.tail()
                running.close()
            app.is_refused(app.instances.take(), named)
            app.results.read()
            kept = dict(app.results.newest) if way_out == "offsets set" else {}
            if way_out == "reset":
                app.reset()
            else:
                app.command("offsets", "set", "--topic", app.source, "--to", "earliest")
            running = app.die_often()
        app.wait_for_totals(added(kept, app.orders.newest(counted)), running)
    assert running.stop() == "stopped NOT_RUNNING"


def added(some, others):
    """Return the counts and sums of both."""
    users = some.keys() | others.keys()
    return {user: tuple(map(sum, zip(some.get(user, (0, 0)), others.get(user, (0, 0)), strict=True))) for user in users}
