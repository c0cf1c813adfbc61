"""Many consumers on one network thread, what they count, and the story of their rebalances, against a real broker."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import threading
import time

import pytest
from tests.waiting import LONG, collect

from sparkrelay.consumer import Consumer, NetworkThread
from sparkrelay.errors import DisconnectException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def network():
    with NetworkThread() as network:
        yield network


@pytest.fixture
def crew(kafka, group, network):
    """`crew(count, **config)` makes members of one group on one thread; all are polled by `crew.poll_until(ready)`."""
    made = []

    def make(count, **config):
        settings = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 200,
        } | {key.replace("_", "."): value for key, value in config.items()}
        made.extend(Consumer(settings, network=network) for _ in range(count))
        return made

    def poll():
        time.sleep(0.01)  # no poll waits: leave the cores to the network thread
        return [row for consumer in made for row in consumer.poll(0).to_pylist()]

    def poll_until(ready):
        return collect(poll, ready, "the condition did not come true")

    make.poll_until, make.members = poll_until, made
    yield make
    for consumer in made:
        consumer.close(10)


def held(consumers):
    return sorted(partition for consumer in consumers for partition in consumer.assignment())


def test_a_crew_on_one_thread_shares_a_topic_and_one_less_takes_over(crew, make_topic, produce):
    topic = make_topic("crew", partitions=12)
    everything = [TopicPartition(topic, n) for n in range(12)]
    before = set(threading.enumerate())
    members = crew(12)
    for member in members:
        member.subscribe([topic])
    crew.poll_until(lambda _: held(members) == everything and all(member.assignment() for member in members))
    assert len(set(threading.enumerate()) - before) == 1

    produce(topic, [{"value": str(n), "partition": n % 12} for n in range(120)])
    rows = crew.poll_until(lambda rows: len(rows) >= 120)
    assert sorted(int(row["value"]) for row in rows) == list(range(120))

    leaver = members.pop()
    leaver.close()
    with pytest.raises(DisconnectException, match="closed"):
        leaver.poll(0)
    crew.poll_until(lambda _: held(members) == everything)
    produce(topic, [{"value": "more", "partition": n} for n in range(12)])
    assert len(crew.poll_until(lambda rows: len(rows) >= 12)) == 12


@pytest.mark.long
def test_members_of_one_thread_that_fail_leave_their_partitions_to_the_others(crew, make_topic):
    topic = make_topic("crew", partitions=3)
    members = crew(3, session_timeout_ms=6000)
    for member in members:
        member.subscribe([topic])
    crew.poll_until(lambda _: all(member.assignment() for member in members))
    broken = members.pop()

    class Broken:
        def poll(self, now):
            raise RuntimeError("broken")

    broken._network.core.managers = (Broken(),)
    crew.poll_until(lambda _: len(held(members)) == 3)
    with pytest.raises(DisconnectException, match="broken"):
        broken.poll(0)
    broken.close()


def test_the_metrics_of_a_member(crew, make_topic, produce):
    topic = make_topic("crew")
    (member,) = crew(1, enable_auto_commit=False)
    member.subscribe([topic])
    produce(topic, [{"value": "x" * 100} for _ in range(50)])
    crew.poll_until(lambda rows: len(rows) >= 50)
    member.commit()
    member.committed(member.assignment())
    crew.poll_until(lambda _: member.metrics()["heartbeat-total"] >= 2)
    values = member.metrics()
    assert (values["records-consumed-total"], values["assigned-partitions"]) == (50, 1)
    assert values["bytes-consumed-total"] > 5000
    assert values["fetch-total"] >= 1
    assert values["fetch-latency-avg"] > 0
    assert (values["commit-total"], values["rebalance-total"], values["sync-total"]) == (1, 1, 1)
    assert values["join-total"] == 1  # the one that only gave the member its name (KIP-394) does not count
    assert values["commit-latency-max"] > 0
    assert values["commit-sync-time-ns-total"] > 0
    assert values["committed-time-ns-total"] > 0
    assert (values["records-lag-max"], values[f"{topic}-0.records-lag"]) == (0, 0)
    assert 0 <= values["last-heartbeat-seconds-ago"] < 60
    assert 0 < values["poll-idle-ratio-avg"] <= 1
    assert not math.isnan(values["time-between-poll-max"])


def test_a_finished_rebalance_is_one_line_at_info(crew, make_topic, caplog):
    topic = make_topic("crew", partitions=2)
    caplog.set_level(logging.INFO, logger="sparkrelay.consumer.rebalance")
    (member,) = crew(1)
    member.subscribe([topic])
    crew.poll_until(lambda _: len(member.assignment()) == 2 and member.metrics()["rebalance-total"] >= 1)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "sparkrelay.consumer.rebalance"]
    assert f"(the consumer subscribed): given {topic} 0-1; taken nothing; 2 held" in line


def test_a_member_without_records_does_without_the_decoder(kafka, group, make_topic):
    # A driver hosts one for each executor: its compiled loops would take 100 MB.
    code = f"""
import sys
from sparkrelay.consumer import Consumer
with Consumer({{"bootstrap.servers": {kafka.bootstrap_servers!r}, "group.id": {group!r}}}) as consumer:
    consumer.subscribe([{make_topic("crew")!r}])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.poll(0.1)
print([name for name in ("numba", "pandas", "sparkrelay.records.batches.decode") if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LONG)
    assert run.stdout.strip() == "[]"
