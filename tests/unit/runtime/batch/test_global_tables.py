"""Copies of whole topics, without Spark and without a broker."""

from pathlib import Path

import pytest
from tests.doubles.jobs import Jobs

from sparkrelay.client.admin import EARLIEST
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import (
    IncompatibleTopologyException,
    MissingSourceTopicException,
    StateStoreException,
    StoreCorruptedException,
)
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.batch.global_tables import GlobalTables
from sparkrelay.runtime.compile.prepared_legs import Wave
from sparkrelay.runtime.contract.commands import LegReport, RestoreReport
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge
from sparkrelay.topology import StreamsBuilder
from sparkrelay.types import TaskId, TopicPartition

pytestmark = pytest.mark.usefixtures("spark")

ONE, OTHER = TopicPartition("countries", 0), TopicPartition("countries", 1)


class Topics:
    """Says how long topics are."""

    def __init__(self, ends, starts=()):
        self.ends, self.starts = dict(ends), dict(starts)

    def partition_counts(self, topics):
        found = [partition.topic for partition in self.ends]
        return {topic: found.count(topic) for topic in topics if topic in found}

    def ids(self, topics):
        return {topic: f"id of {topic}" for topic in topics}

    def offsets(self, wanted):
        return {p: self.starts.get(p, 0) if what == EARLIEST else self.ends[p] for p, what in wanted.items()}


class Copies(Jobs):
    """Jobs whose copies stand where the test says, until they are wiped."""

    def __init__(self, *answers, positions=None, batches=()):
        super().__init__(*answers)
        self.collect = None
        self.positions, self.batches, self.ran = positions or {}, list(batches), []

    def _report(self, task, error):
        positions = {} if task.wipe else self.positions
        return RestoreReport(task.task, positions, 7 if positions else 0, {}, error=error)

    def run_batch(self, frame, command, *, description):
        self.command = command
        answer = self.batches.pop(0) if self.batches else None
        if isinstance(answer, Exception):
            raise answer
        (task,) = [task for share in command.spark_partitions for task in share]
        self.ran.append((task.batch, dict(task.ranges)))
        return [LegReport("store:geo", task.task, task.batch)]


class PreparedLegs:
    def renew(self, subtopologies, collect):
        return False

    def waves(self, subtopologies, topics):
        return [Wave(object(), {"store:geo": (min(subtopologies), frozenset(topics))})]


def tables(jobs, topics):
    builder = StreamsBuilder()
    countries = builder.global_table("countries", key=String("country"), value=Json("continent string"), name="geo")
    builder.stream("orders", value=Json("country string")).join(countries, "country").to("out")
    settings = {"application.id": "app", "bootstrap.servers": "localhost:1", "max.batch.records": 100}
    return GlobalTables(
        config=StreamsConfig.from_dict(settings),
        legs=builder.build().global_tables,
        plans=PreparedLegs(),
        jobs=jobs,
        home=Path("/state/global"),
        topics=topics,
    )


def advanced(copies):
    """Open the copies and have them take all in; return after which number of batches they were complete."""
    copies.open()
    count = 0
    while not copies.complete:
        assert copies.advance() is not None
        count += 1
    return count


def test_a_new_copy_reads_every_partition_from_its_beginning():
    jobs = Copies()
    copies = tables(jobs, Topics({ONE: 150, OTHER: 9}, {OTHER: 4}))
    assert advanced(copies) == 2
    assert jobs.ran == [(1, {OTHER: (4, 9), ONE: (0, 95)}), (2, {ONE: (95, 150)})]
    ((command,),) = jobs.commands
    assert (command.task, command.directory, command.take_over) == (TaskId(1, 0), "/state/global/geo", True)
    assert (command.committed, command.wipe) == (None, False), "nothing but the copy says where it stands"
    assert copies.advance() is None
    assert copies.positions == {ONE: 150, OTHER: 9}


def test_a_copy_goes_on_where_it_was_and_is_looked_at_with_nothing_to_read():
    jobs = Copies(positions={ONE: 150, OTHER: 9})
    assert advanced(tables(jobs, Topics({ONE: 150, OTHER: 9}))) == 1
    assert jobs.ran == [(8, {ONE: (150, 150), OTHER: (9, 9)})]


def test_records_of_too_many_bytes_are_read_in_smaller_batches():
    jobs = Copies(batches=[BatchTooLarge("too large", 500_000)])
    assert advanced(tables(jobs, Topics({ONE: 90}))) == 4
    assert [ranges for _, ranges in jobs.ran] == [{ONE: (0, 36)}, {ONE: (36, 72)}, {ONE: (72, 90)}]
    assert jobs.command.max_bytes == 64 << 20


@pytest.mark.parametrize(
    ("answers", "positions"),
    [
        ([StoreCorruptedException("damaged")], {ONE: 5}),
        ([], {ONE: 200}),
        ([], {ONE: 1}),
    ],
    ids=["damaged", "beyond the end", "before the beginning"],
)
def test_a_copy_that_is_of_no_use_is_read_anew(answers, positions):
    jobs = Copies(*answers, positions=positions)
    assert advanced(tables(jobs, Topics({ONE: 50}, {ONE: 3}))) == 1
    assert [(command.wipe, command.kept_aside) for (command,) in jobs.commands] == [(False, False), (True, False)]
    assert jobs.ran == [(1, {ONE: (3, 50)})]


def test_a_copy_of_another_pipeline_is_read_anew_and_only_once():
    other = IncompatibleTopologyException("holds something else")
    jobs = Copies(positions={ONE: 5}, batches=[other])
    assert advanced(tables(jobs, Topics({ONE: 5}))) == 2
    assert [command.wipe for (command,) in jobs.commands] == [False, True]
    assert jobs.ran == [(1, {ONE: (0, 5)})]
    with pytest.raises(IncompatibleTopologyException):
        advanced(tables(Copies(batches=[other, other]), Topics({ONE: 5})))


def test_a_copy_that_cannot_be_made_ends_it():
    with pytest.raises(StateStoreException, match="full"):
        advanced(tables(Copies(*[StoreCorruptedException("full")] * 2), Topics({ONE: 5})))


def test_once_in_use_it_is_never_emptied():
    jobs = Copies()
    topics = Topics({ONE: 5})
    copies = tables(jobs, topics)
    advanced(copies)
    topics.ends[ONE], jobs.batches = 9, [IncompatibleTopologyException("who would do that")]
    with pytest.raises(IncompatibleTopologyException):
        copies.advance()
    assert [command.wipe for (command,) in jobs.commands] == [False]


def test_partitions_that_come_later_are_read_from_their_beginning():
    jobs, topics = Copies(), Topics({ONE: 5})
    copies = tables(jobs, topics)
    advanced(copies)
    topics.ends[OTHER], topics.starts[OTHER] = 9, 2
    copies.widen()
    copies.widen()
    copies.advance()
    assert jobs.ran[-1] == (2, {OTHER: (2, 9)})
    assert copies.positions == {ONE: 5, OTHER: 9}


def test_a_topic_that_is_not_there_is_named():
    with pytest.raises(MissingSourceTopicException, match="'countries' of the global table 'geo' does not exist"):
        tables(Copies(), Topics({})).open()
