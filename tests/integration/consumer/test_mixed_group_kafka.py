"""One classic group of ours, librdkafka's and Java's consumer: no partition is owned twice or by nobody, none is lost.

Members are processes that print when they got and gave up partitions and what they read (Java's console consumer by its
log and its output). From that the whole story is checked: the times in which partitions were owned never overlap, in
every stable phase each partition has one reader, and together the members read every record. Each client leads the
group in some phase: the first one in an empty group leads it until it goes.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay.devkafka.jars import kafka_classpath
from sparkrelay.java import require_java

pytestmark = pytest.mark.integration

PARTITIONS = 6
JAVA = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
#: The lines of Java's log that show ownership; it writes them before anything else happens.
JAVA_EVENTS = {"Adding newly assigned": "+", "Revoke previously assigned": "-", "Lost previously assigned": "!"}


class Member:
    """A process in the group, and its story as (time, kind, numbers)."""

    def __init__(self, client, command, log):
        self.client, self.log, self.ended = client, log, None
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def story(self):
        # Read once: it is being written, and the last line may be half of one.
        written = self.log.read_bytes()
        for line in written[: written.rfind(b"\n") + 1].decode().splitlines():
            yield from java_line(line) if self.client == "java" else plain_line(line)

    def reads(self):
        return [tuple(numbers) for _, kind, numbers in self.story() if kind == "r"]

    def leads(self):
        return any(kind == "leads" for _, kind, _ in self.story())

    def tenures(self):
        """Yield (partition, from, to) of each time that it owned a partition."""
        since, last = {}, 0.0
        for at, kind, numbers in self.story():
            last = at or last
            if kind == "+":
                since |= dict.fromkeys(numbers, at)
            elif kind in {"-", "!"}:
                for partition in numbers:
                    yield partition, since.pop(partition), at
        for partition, start in since.items():
            yield partition, start, self.ended or last

    def end(self, sig):
        self.process.send_signal(sig)
        killed = time.time()
        code = self.process.wait(LONG)
        # A busy machine may run us again only when others have been given the partitions of one that was killed.
        self.ended = killed if sig == signal.SIGKILL else time.time()
        assert sig == signal.SIGKILL or code in {0, 143}, self.log.read_text()[-3000:]


def plain_line(line):
    if found := re.fullmatch(r"(\d+\.\d+) (\S+) ([\d ]*)", line):
        yield float(found[1]), found[2], [int(number) for number in found[3].split()]


def java_line(line):
    if found := re.fullmatch(r"Partition:(\d+)\tOffset:(\d+)", line):
        yield None, "r", [int(found[1]), int(found[2])]
    elif found := re.match(
        r"(\d{4}-\S+) .*ConsumerRebalanceListenerInvoker - .*?(\w+ \w+ assigned) partitions:? (.*)", line
    ):
        numbers = [int(number) for number in re.findall(r"-(\d+)(?=[,\] ]|$)", found[3])]
        yield datetime.fromisoformat(found[1]).timestamp(), JAVA_EVENTS[found[2]], numbers
    elif found := re.match(r"(\d{4}-\S+) .*Finished assignment for group at generation (\d+)", line):
        yield datetime.fromisoformat(found[1]).timestamp(), "leads", [int(found[2])]


class Group:
    """The members of a group, alive and dead, and records that go on being written while they come and go."""

    def __init__(self, kafka, admin, name, topic, strategy, folder, wait_until):
        self.kafka, self.admin, self.name, self.topic, self.strategy = kafka, admin, name, topic, strategy
        self.folder, self.wait_until, self.members = folder, wait_until, []
        self._written, self._stop = 0, threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def _write(self):
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 0})
        while not self._stop.wait(0.05):
            for partition in range(PARTITIONS):
                producer.produce(self.topic, b"x", partition=partition)
            assert producer.flush(LONG) == 0
            self._written += 1  # so many in each partition

    def start(self, client):
        address = self.kafka.bootstrap_servers
        log = self.folder / f"{len(self.members)}-{client}"
        if client == "java":
            command = java_command(address, self.name, self.topic, JAVA[self.strategy])
        else:
            script = Path(__file__).with_name("mixed_reader.py")
            command = [sys.executable, str(script), client, address, self.name, self.topic, self.strategy]
        self.members.append(Member(client, command, log))
        return self.members[-1]

    @property
    def living(self):
        return [member for member in self.members if member.ended is None]

    def _shared(self):
        from confluent_kafka import KafkaException

        try:
            found = self.admin.describe_consumer_groups([self.name], request_timeout=10)[self.name].result(LONG)
        except (KafkaException, TimeoutError):  # while the coordinator is being made
            return False
        shares = [{p.partition for p in member.assignment.topic_partitions} for member in found.members]
        return (
            found.state.name == "STABLE"
            and len(shares) == len(self.living)
            and sorted(p for share in shares for p in share) == list(range(PARTITIONS))
            and max(map(len, shares)) - min(map(len, shares)) <= 1
        )

    def wait_until_stable(self):
        """Wait until the living share the partitions, and see that each partition has one reader."""
        assert all(member.process.poll() is None for member in self.living), self.story()
        self.wait_until(self._shared, "the group does not become stable")
        start = self._written
        self.wait_until(lambda: self._written >= start + 10, "nothing is written")
        fresh = range(start + 2, start + 10)

        def readers():
            found = defaultdict(set)
            for member in self.members:
                for partition, offset in member.reads():
                    found[partition, offset].add(member)
            return [found[p, offset] for p in range(PARTITIONS) for offset in fresh]

        self.wait_until(lambda: all(readers()), "some partition has no reader")
        assert all(len(found) == 1 for found in readers()), self.story()

    def finish(self):
        """Wait until everything was read, end everybody, and check the story of ownership."""
        self._stop.set()
        self._writer.join(LONG)
        everything = {(p, offset) for p in range(PARTITIONS) for offset in range(self._written)}
        self.wait_until(lambda: everything <= {r for m in self.members for r in m.reads()}, "records were lost")
        for member in self.living:
            member.end(signal.SIGTERM)
        tenures = sorted(tenure for member in self.members for tenure in member.tenures())
        assert {partition for partition, _, _ in tenures} == set(range(PARTITIONS))
        for (before, _, end), (partition, start, _) in pairwise(tenures):
            assert partition != before or start >= end, f"partition {partition} was owned twice\n{self.story()}"

    def story(self):
        lines = [
            (at, member.log.name, kind, numbers)
            for member in self.members
            for at, kind, numbers in member.story()
            if kind != "r"
        ]
        return "\n".join(map(str, sorted(lines)))


def java_command(address, group, topic, strategy):
    properties = {
        "partition.assignment.strategy": strategy,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
        "heartbeat.interval.ms": 500,
        "session.timeout.ms": 8000,
    }
    logger = "org.slf4j.simpleLogger"
    return [
        require_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        f"-D{logger}.showDateTime=true", f"-D{logger}.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        "-cp", kafka_classpath(artifact="kafka-tools"), "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", address, "--topic", topic, "--group", group,
        *(part for name, value in properties.items() for part in ("--command-property", f"{name}={value}")),
        *(part for what in ("partition=true", "offset=true", "value=false", "timestamp=false")
          for part in ("--formatter-property", f"print.{what}")),
    ]  # fmt: skip


@pytest.fixture
def mixed_group(kafka, kafka_admin, group, make_topic, wait_until, tmp_path):
    made = []

    def make(strategy):
        made.append(Group(kafka, kafka_admin, group, make_topic("mixed", PARTITIONS), strategy, tmp_path, wait_until))
        return made[-1]

    yield make
    for each in made:
        each._stop.set()
        for member in each.living:
            member.process.kill()
            member.process.wait(LONG)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_mixed_group_keeps_its_partitions_through_joins_leaves_and_kills(mixed_group, strategy):
    group = mixed_group(strategy)
    java = group.start("java")
    group.wait_until_stable()
    ours, theirs = group.start("ours"), group.start("librdkafka")
    group.wait_until_stable()
    assert java.leads()
    assert not ours.leads()

    java.end(signal.SIGKILL)
    group.wait_until_stable()
    theirs.end(signal.SIGTERM)
    group.wait_until_stable()
    java, theirs = group.start("java"), group.start("librdkafka")
    group.wait_until_stable()
    assert ours.leads()
    assert not java.leads()

    ours.end(signal.SIGKILL)
    group.wait_until_stable()
    java.end(signal.SIGTERM)
    group.wait_until_stable()
    ours, java = group.start("ours"), group.start("java")
    group.wait_until_stable()
    assert not ours.leads()  # so librdkafka does
    assert not java.leads()
    group.finish()
