"""Dead letters on a real broker: in the transaction of their task, and written back once by the command line."""

import datetime as dt
import json

import pytest
from pyspark.sql import functions as F
from tests.marks import first_of
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.cli import app as command_line
from sparkrelay.consumer import Consumer
from sparkrelay.errors import StreamsException, UnknownTopicException
from sparkrelay.types import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def tenths(source, sink):
    def tenth(amount):
        return 10 // amount

    builder = StreamsBuilder()
    orders = builder.stream(source, key=String("user"), value=Json("amount int, n int"))
    orders.select("n", F.udf(tenth, "int")("amount").alias("tenth")).to(sink, value=Json())
    return builder


def config(letters):
    return {
        "errors.dead.letter.queue.topic.name": letters,
        "deserialization.exception.handler": "log-and-continue",
        "processing.exception.handler": "log-and-continue",
        "max.batch.retries": 0,
    }


@pytest.mark.long
def test_letters_are_written_listed_and_go_back_once(
    instance, make_topic, produce, consumed, wait_until, kafka, capsys
):
    """The proof on a real broker; tests/integration/testing/test_dead_letters.py has which records become letters."""
    source, sink, letters = make_topic("in", 2), make_topic("out", 2), make_topic("letters", 2)
    order = {n: json.dumps({"amount": 0 if n in {3, 11} else 1, "n": n}) for n in range(12)}
    records = [(f"u{n}", "no json" if n == 7 else text) for n, text in order.items()]
    streams = instance(tenths(source, sink), config(letters))
    streams.start()
    produce(source, records)
    wait_until(lambda: len(consumed(letters)) == 3 and len(consumed(sink)) == 9, lambda: streams.status)
    assert {json.loads(value)["n"] for _, _, _, value in consumed(sink)} == set(range(12)) - {3, 7, 11}
    wait_until(lambda: sum(streams.snapshot().totals.skipped.values()) == 3, "the last batch is not counted")
    at = ["--bootstrap-servers", kafka.bootstrap_servers]
    capsys.readouterr()
    assert command_line.run(["dead-letters", "list", letters, *at]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in listed] == [
        ["2", source, "ZeroDivisionError"],
        ["1", source, "sparkrelay.errors.SerializationException"],
    ]
    assert command_line.run(["dead-letters", "show", letters, *at, "--last", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("  value    ") == 2
    assert f"from {source}-" in shown
    assert command_line.run(["dead-letters", "replay", letters, *at]) == 0
    assert f"3 would go back to {source}" in capsys.readouterr().out
    streams.stop(LONG)
    assert command_line.run(["dead-letters", "replay", letters, *at, "--execute"]) == 0
    assert f"3 went back to {source}" in capsys.readouterr().out
    assert command_line.run(["dead-letters", "replay", letters, *at, "--execute"]) == 0
    assert "nothing that was not written back" in capsys.readouterr().out
    back = sorted((key, value) for _, _, key, value in consumed(source))
    assert back == sorted([(k.encode(), v.encode()) for k, v in [*records, *(records[n] for n in (3, 7, 11))]])


NOW = dt.datetime.now(dt.UTC).isoformat()
REFUSED = {
    "timestamp": ({}, {"user": "x", "at": "2100-01-01T00:00:00Z"}, "INVALID_TIMESTAMP"),
    "no key": ({"cleanup.policy": "compact"}, {"user": None, "at": NOW}, "INVALID_RECORD"),
    "too large": ({"max.message.bytes": "5000"}, {"user": "x" * 9000, "at": NOW}, "MESSAGE_TOO_LARGE"),
}


@pytest.mark.parametrize("case", first_of(REFUSED))
def test_a_record_that_the_broker_refuses_is_set_aside(
    instance, make_topic, produce, consumed, wait_until, caplog, case
):
    """The others are written, those of its batch too."""
    topic_config, bad, why = REFUSED[case]
    source, sink, letters = make_topic("in", 1), make_topic("out", 1, config=topic_config), make_topic("letters", 1)
    builder = StreamsBuilder()
    orders = builder.stream(source, value=Json("user string, n int, at timestamp"), timestamp="at")
    orders.to(sink, key=String("user"), value=Json())
    handlers = {"production.exception.handler": "log-and-continue", "errors.dead.letter.queue.topic.name": letters}
    produce(source, [(str(n), {"n": n, **(bad if n == 5 else {"user": f"u{n}", "at": NOW})}) for n in range(12)])
    streams = instance(builder, {**handlers, "max.batch.retries": 0})
    streams.start()
    wait_until(lambda: len(consumed(letters)) == 1 and len(consumed(sink)) == 11, lambda: streams.status)
    assert [(key, json.loads(value)["n"]) for _, _, key, value in consumed(letters)] == [(b"5", 5)]
    assert {json.loads(value)["n"] for *_, value in consumed(sink)} == set(range(12)) - {5}
    assert why in caplog.text


@pytest.mark.long
def test_topics_that_cannot_take_letters(instance, make_topic, kafka, capsys):
    source, sink = make_topic("in", 1), make_topic("out", 1)
    with pytest.raises(UnknownTopicException, match="dead.letter.queue.*'nowhere' does not exist"):
        instance(tenths(source, sink), config("nowhere")).start()
    with pytest.raises(StreamsException, match="is also read or written by the pipeline"):
        instance(tenths(source, sink), config(source)).start()
    assert command_line.run(["dead-letters", "list", "nowhere", "--bootstrap-servers", kafka.bootstrap_servers]) == 1
    assert "topic 'nowhere' does not exist" in capsys.readouterr().err


@pytest.mark.long
def test_a_letter_that_its_topic_refuses_is_named_and_can_be_left_out(make_topic, produce, consumed, kafka, capsys):
    source, letters = make_topic("in", 1, config={"cleanup.policy": "compact"}), make_topic("letters", 1)
    headers = {"topic": source, "partition": "0", "offset": "7"}
    where = [(f"__streams.errors.{name}", text.encode()) for name, text in headers.items()]
    rows = [{"key": None if n == 4 else f"u{n}", "value": str(n), "headers": where, "partition": 0} for n in range(7)]
    produce(letters, rows)
    replay = ["dead-letters", "replay", letters, "--bootstrap-servers", kafka.bootstrap_servers, "--execute"]
    for _ in range(2):
        assert command_line.run(replay) == 1
        refused = capsys.readouterr().err
        assert f"topic {source!r} rejects the letter at offset 4 of {letters}-0" in refused
        assert f"--group {letters}-replay --topic {letters}:0 --reset-offsets --to-offset 5" in refused
        assert [value for *_, value in consumed(source)] == [b"0", b"1", b"2", b"3"]
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{letters}-replay"}
    with Consumer(config) as consumer:
        consumer.commit({TopicPartition(letters, 0): 5})
    assert command_line.run(replay) == 0
    assert [value for *_, value in consumed(source)] == [b"0", b"1", b"2", b"3", b"5", b"6"]
