"""From a leg's first step to its last: what was skipped is written by the leg that speaks for it, and reported."""

from unittest.mock import Mock

import pyarrow as pa
import pytest

from sparkrelay.client.file_log import LOG_DIRECTORY, FileLog, FileProducer
from sparkrelay.client.produce import Flushed
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.errors import RecordRefusedException, RecordTooLargeException, StreamsException
from sparkrelay.records.batches.columns import KAFKA_SCHEMA
from sparkrelay.runtime.contract.commands import BatchCommand, LeftOut, LegReport, TaskCommand, decode_bytes
from sparkrelay.runtime.contract.specs import SkippedSpec
from sparkrelay.runtime.worker.context import commanded, report_row
from sparkrelay.runtime.worker.rows_file import leg_file
from sparkrelay.runtime.worker.skipped_records import SkippedRecords, reporting_skipped
from sparkrelay.types import TaskId, TopicPartition

IN = TopicPartition("orders", 1)
TASK = TaskId(0, 1)


@pytest.fixture(autouse=True)
def one_spark_partition(monkeypatch):
    monkeypatch.setattr("sparkrelay.runtime.worker.context.current_spark_partition", lambda _: 0)


@pytest.fixture
def spec(tmp_path):
    def make(leg="leg", topic="letters"):
        return SkippedSpec(
            leg=leg,
            subtopology=0,
            topics=("orders",),
            spark_partitions=1,
            client={LOG_DIRECTORY: str(tmp_path / "topics")},
            map_limit=1,
            failure_key=b"",
            topic=topic,
            compression="none",
            flush_seconds=10.0,
        )

    return make


@pytest.fixture
def command(tmp_path):
    def make(number=1, left_out=None):
        identity = ProducerIdentity("app-0_1", 1, number)
        task = TaskCommand(TASK, number, number - 1, 1, None, identity, {IN: (0, 9)}, {}, left_out=left_out or {})
        home = str(tmp_path / "skipped" / f"run-{number}")
        skips = frozenset({("leg", "orders"), ("beside", "shops")})
        return BatchCommand(((task,),), {"letters": 2}, skipped_records=home, skips_of=skips)

    return make


def raw(*rows):
    made = [
        {"key": key, "value": value, "offset": offset, "timestamp": offset, "timestampType": 0, "headers": headers}
        for offset, key, value, headers in rows
    ]
    return pa.RecordBatch.from_pylist(made, KAFKA_SCHEMA)


def report(leg="leg", error=None):
    return LegReport(leg, TASK, 1, rows_in=2, next_sequences={TopicPartition("out", 0): 5}, error=error)


def run_last(spec, *reports):
    def step(batches):
        list(batches)
        yield report_row(list(reports))

    (row,) = reporting_skipped(spec, step, iter(()))
    return decode_bytes(row.column(0)[0].as_py())


def letters(tmp_path):
    log = FileLog(tmp_path / "topics")
    log.commit("app-0_1")
    return [
        row
        for partition in (TopicPartition("letters", 0), TopicPartition("letters", 1))
        for row in log.read(partition, 0, log.end(partition), ("value", "headers")).to_pylist()
    ]


def test_what_was_skipped_is_written_and_reported(spec, command, tmp_path):
    rows = raw((3, b"a", b"bad", [{"key": "own", "value": b"1"}]), (4, None, b"good", None), (5, None, b"worse", None))
    with commanded(command()):
        skipped = SkippedRecords(spec(), command().spark_partitions[0])
        skipped.undecoded(IN, rows, {0: "no JSON", 2: "nor this"})
        skipped.close()
        [made] = run_last(spec(), report())
        assert made.skipped == {"orders": 2}
        assert set(made.next_sequences) > {TopicPartition("out", 0)}
        [again] = run_last(spec(), report())
        assert again == report(), "a file is taken once"
    found = {row["value"]: row for row in letters(tmp_path)}
    assert set(found) == {b"bad", b"worse"}
    headers = [(header["key"], header["value"]) for header in found[b"bad"]["headers"]]
    assert headers == [
        ("own", b"1"),
        ("__streams.errors.exception", b"sparkrelay.errors.SerializationException"),
        ("__streams.errors.message", b"no JSON"),
        ("__streams.errors.stacktrace", b"sparkrelay.errors.SerializationException: no JSON"),
        ("__streams.errors.topic", b"orders"),
        ("__streams.errors.partition", b"1"),
        ("__streams.errors.offset", b"3"),
    ]


def test_records_that_are_left_out_are_not_there_for_any_leg_and_written_by_one(spec, command, tmp_path):
    left_out = {IN: {4: LeftOut("ValueError", "no (f.py:3)", "the stacks")}}
    rows = raw((3, b"a", b"1", None), (4, b"a", b"2", None))
    for leg in ("beside", "leg"):
        with commanded(command(left_out=left_out)):
            skipped = SkippedRecords(spec(leg), command(left_out=left_out).spark_partitions[0])
            assert skipped.left_out(IN, rows).column("offset").to_pylist() == [3]
            skipped.close()
            [made] = run_last(spec(leg), report(leg))
            assert made.skipped == ({"orders": 1} if leg == "leg" else {})
    [letter] = letters(tmp_path)
    assert letter["value"] == b"2"
    assert {"key": "__streams.errors.stacktrace", "value": b"the stacks"} in letter["headers"]


def test_a_worker_of_a_cancelled_batch_takes_none_of_the_next_ones(spec, command, tmp_path):
    def skip(number):
        with commanded(command(number)):
            skipped = SkippedRecords(spec(), command(number).spark_partitions[0])
            skipped.undecoded(IN, raw((3, b"a", b"bad", None)), {0: "no JSON"})
            skipped.close()

    skip(2)
    skip(1)
    with commanded(command(2)):
        [made] = run_last(spec(), report())
    assert made.skipped == {"orders": 1}
    assert [row["value"] for row in letters(tmp_path)] == [b"bad"]


def test_without_a_topic_they_are_counted_and_what_failed_writes_nothing(spec, command, tmp_path):
    with commanded(command()):
        for _ in range(2):
            skipped = SkippedRecords(spec(), command().spark_partitions[0])
            skipped.undecoded(IN, raw((3, b"a", b"bad", None)), {0: "no JSON"})
            skipped.close()
        [failed] = run_last(spec(), report(error=StreamsException("no")))
        assert not failed.skipped
        [made] = run_last(spec(topic=None), report())
        assert made == report()._replace(skipped={"orders": 1})
    assert not (tmp_path / "topics").exists()


def test_what_a_failed_batch_has_left_goes_with_the_next_one(spec, command, tmp_path):
    for number in (1, 2):
        with commanded(command(number)):
            skipped = SkippedRecords(spec(), command(number).spark_partitions[0])
            skipped.undecoded(IN, raw((3, b"a", b"bad", None)), {0: "no JSON"})
            skipped.close()
    assert [path.name for path in (tmp_path / "skipped").iterdir()] == ["run-2"]


def test_a_disk_that_takes_nothing_is_named(spec, command, tmp_path):
    (tmp_path / "skipped").write_text("no directory")
    with commanded(command()):
        skipped = SkippedRecords(spec(), command().spark_partitions[0])
        with pytest.raises(StreamsException, match="skipped records of task 0_1 cannot be written"):
            skipped.undecoded(IN, raw((3, b"a", b"bad", None)), {0: "no JSON"})


def test_a_file_that_is_cut_off_is_an_error_of_the_task(spec, command):
    with commanded(command()):
        skipped = SkippedRecords(spec(), command().spark_partitions[0])
        skipped.undecoded(IN, raw((3, b"a", b"bad", None)), {0: "no JSON"})
        skipped.close()
        path = leg_file(command().skipped_records, "leg", command().spark_partitions[0][0])
        path.write_bytes(path.read_bytes()[:40])
        [made] = run_last(spec(), report())
    assert "cannot be read" in str(made.error)


@pytest.mark.parametrize("kind", [RecordTooLargeException, RecordRefusedException])
@pytest.mark.parametrize("refused", ["by the client", "by the topic"])
def test_a_letter_that_its_topic_refuses_is_said_to_be_one(spec, command, monkeypatch, refused, kind):
    reason = kind("2000100 bytes to letters-0")
    if refused == "by the client":
        monkeypatch.setattr(FileProducer, "send", Mock(side_effect=reason))
    else:
        monkeypatch.setattr(FileProducer, "flush_each", lambda *_: Flushed({}, {"app-0_1": reason}))
    with commanded(command()):
        skipped = SkippedRecords(spec(), command().spark_partitions[0])
        skipped.undecoded(IN, raw((3, b"a", b"bad", None)), {0: "no JSON"})
        skipped.close()
        [made] = run_last(spec(), report())
    assert isinstance(made.error, kind)
    assert str(made.error).startswith("a dead letter does not fit errors.dead.letter.queue.topic.name='letters'")
    assert "max.message.bytes" in str(made.error)
    assert str(reason) in str(made.error)
