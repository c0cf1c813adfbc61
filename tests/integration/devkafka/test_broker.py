"""The development broker itself: each test has one of its own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.waiting import LONG

from sparkrelay.devkafka import DevKafka
from sparkrelay.devkafka.ports import LOOPBACK, is_free
from sparkrelay.devkafka.probe import answers
from sparkrelay.errors import DevKafkaException
from sparkrelay.host import process_start

pytestmark = pytest.mark.integration


def port_of(broker):
    return int(broker.bootstrap_servers.rpartition(":")[2])


def answering(broker, timeout_s=LONG):
    return answers(LOOPBACK, port_of(broker), timeout_s=timeout_s)


def make_topic(broker, name):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(LONG)


def write(broker, topic, *values):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(LONG) == 0


def read(broker, topic, count):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(count, LONG)]
    consumer.close()
    return values


@pytest.mark.long
def test_life_of_a_broker(tmp_path, wait_until):
    """Stop, restart, SIGKILL, pause and resume: same address, same data, acknowledged records kept."""
    broker = DevKafka(data_dir=tmp_path / "data", log_dir=tmp_path / "log")
    with broker:
        address, first_pid = broker.bootstrap_servers, broker.pid
        assert answering(broker)
        assert broker.start() is broker
        assert broker.pid == first_pid, "starting a running broker changes nothing"
        make_topic(broker, "t")
        write(broker, "t", b"1")

        broker.restart()
        assert (broker.bootstrap_servers, broker.pid != first_pid) == (address, True)
        write(broker, "t", b"2")
        # It says so a moment after it begins to answer.
        wait_until(lambda: broker.log_path.read_text().count("Kafka Server started") == 2, "it does not say so")

        broker.kill()
        assert not broker.running
        assert not answering(broker)
        broker.kill()
        broker.stop()
        broker.start()
        assert broker.bootstrap_servers == address
        assert read(broker, "t", 2) == [b"1", b"2"]

        broker.pause()
        assert broker.running
        # An answer that was under way when the signal came may still arrive.
        wait_until(lambda: not answering(broker, timeout_s=0.3), "it answers although it is paused")
        broker.resume()
        wait_until(lambda: answering(broker), "no answer after the pause")

        broker.pause()
        broker.stop()
        assert not broker.running
    assert broker.log_path == tmp_path / "log" / "broker.log"
    assert broker.log_path.read_text().count("Kafka Server started") == 3

    # The data of a given folder stays, and another broker serves it on another port.
    with DevKafka(data_dir=tmp_path / "data") as another:
        assert another.bootstrap_servers != address
        assert read(another, "t", 2) == [b"1", b"2"]


def test_a_temporary_broker_leaves_nothing():
    with DevKafka() as broker:
        folder, pid, port = broker.data_dir, broker.pid, port_of(broker)
        assert folder.is_dir()
    assert not folder.exists()
    assert process_start(pid) is None
    assert is_free(port)


@pytest.mark.long
def test_two_brokers_do_not_share_a_folder(tmp_path):
    with (
        DevKafka(data_dir=tmp_path),
        pytest.raises(DevKafkaException, match="Another broker uses this data folder"),
    ):
        DevKafka(data_dir=tmp_path, log_dir=tmp_path / "second").start()


def test_server_properties_and_the_heap_reach_the_broker():
    with DevKafka(heap_mb=300, server_properties={"message.max.bytes": "123456"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        found = admin.describe_configs([resource])[resource].result(LONG)
        assert found["message.max.bytes"].value == "123456"
        assert found["auto.create.topics.enable"].value == "false"
        assert b"-Xmx300m" in Path(f"/proc/{broker.pid}/cmdline").read_bytes().split(b"\0")


def test_a_setting_that_kafka_refuses_is_shown():
    with pytest.raises(DevKafkaException, match="num.io.threads"):
        DevKafka(server_properties={"num.io.threads": "many"}).start()


@pytest.mark.long
def test_the_broker_dies_with_its_parent(wait_until):
    script = (
        "from sparkrelay.devkafka import DevKafka\n"
        "k = DevKafka().start()\n"
        "print(k.pid, k.data_dir, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        pid, folder = parent.stdout.readline().split()
        started = process_start(int(pid))
        assert started is not None
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: process_start(int(pid)) != started, f"broker {pid} outlives its parent")

    # Its folder goes when the next broker starts.
    with DevKafka() as broker:
        assert str(broker.data_dir) != folder
        assert not Path(folder).exists()
