"""The demo as a stranger runs it, and the parts of it that speak to Kafka."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.waiting import LONG

from sparkrelay.demo.feed import Feeder
from sparkrelay.demo.flights import FLIGHTS, flights
from sparkrelay.demo.reader import OutputReader
from sparkrelay.demo.tables import BY_CARRIER, BY_ORIGIN, PARTITIONS, Totals
from sparkrelay.errors import SerializationException
from sparkrelay.records.partition import murmur2_partitions

pytestmark = pytest.mark.integration

KEYS = {
    "records",
    "exact",
    "lost",
    "overcounted",
    "records_per_second",
    "joined_s",
    "takeover_s",
    "instances",
    "session_timeout_ms",
    "kafka_version",
    "spark_version",
    "spark_start_s",
}


@pytest.mark.long
def test_the_feeder_produces_every_flight_once_in_order(kafka, make_topic, consumed, wait_until):
    topic = make_topic("flights", PARTITIONS, {"retention.ms": "-1"})
    feeder = Feeder(kafka.bootstrap_servers, topic)
    try:
        feeder.begin(seconds=1.0, limit=0.01)
        wait_until(lambda: feeder.feed() or feeder.produced, "nothing is produced")
        feeder.lift(1.0)
        wait_until(lambda: feeder.feed() or feeder.done, "not all is produced")
    finally:
        feeder.close()
    rows = consumed(topic, full=True)
    assert len(rows) == FLIGHTS
    expected = sorted((f["key"], f["timestamp"], f["value"]) for f in flights().to_pylist())
    assert sorted((m.key(), m.timestamp()[1], m.value()) for m in rows) == expected
    assert len({(m.key(), m.partition()) for m in rows}) == len({m.key() for m in rows})
    for partition in range(PARTITIONS):
        times = [m.timestamp()[1] for m in rows if m.partition() == partition]
        assert times == sorted(times)


@pytest.fixture
def make_reader(kafka):
    made = []

    def make(outputs):
        made.append(OutputReader(kafka.bootstrap_servers, outputs))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


def read_until(wait_until, reader, condition, what):
    def look():
        reader.read(0.1)
        return condition()

    wait_until(look, what)


@pytest.fixture
def outputs(make_topic):
    return tuple(o._replace(topic=make_topic(o.topic, PARTITIONS)) for o in (BY_CARRIER, BY_ORIGIN))


def row(flights, **key):
    return {**key, "flights": flights, "total_delay": 2 * flights, "mean_delay": 2.0}


def day(text):
    return {"start": f"{text}T00:00:00.000Z", "end": "whatever"}


def test_the_reader_keeps_the_last_row_of_each_key(make_reader, outputs, produce, wait_until):
    by_carrier, by_origin = outputs
    reader = make_reader(outputs)
    produce(by_carrier.topic, [("a", row(n, carrier="UA", window=day("2013-01-01"))) for n in (1, 2, 3)])
    produce(by_carrier.topic, [("b", row(5, carrier="UA", window=day("2013-01-02")))], transactional_id="t1")
    read_until(wait_until, reader, lambda: reader.rows == 4, "the rows are not read")
    produce(by_origin.topic, [("EWR", row(7, origin="EWR"))])
    tables = reader.finish()
    assert reader.counted == {by_carrier.topic: 8, by_origin.topic: 7}
    assert tables == {
        by_carrier.topic: {("UA", "2013-01-01"): Totals(3, 6, 2.0), ("UA", "2013-01-02"): Totals(5, 10, 2.0)},
        by_origin.topic: {("EWR",): Totals(7, 14, 2.0)},
    }


def test_the_first_row_of_a_watched_task_is_one_written_after_the_watch_began(
    make_reader, outputs, produce, wait_until
):
    by_carrier, _ = outputs
    reader = make_reader(outputs)
    ua = row(1, carrier="UA", window=day("2013-01-01"))
    task = by_carrier.task(int(murmur2_partitions(pa.array([b"UA"]), PARTITIONS)[0]))
    produce(by_carrier.topic, [("a", ua)])
    reader.watch({task})
    produce(by_carrier.topic, [("a", row(1, carrier="AA", window=day("2013-01-01")))])
    read_until(wait_until, reader, lambda: reader.rows == 2, "the rows are not read")
    assert reader.first_row is None
    produce(by_carrier.topic, [("a", ua), ("a", ua)])
    read_until(wait_until, reader, lambda: reader.first_row, "the row is not seen")
    assert (reader.first_row.task, reader.first_row.row) == (task, ("UA", "2013-01-01"))


def test_a_row_that_is_none_is_an_error(make_reader, outputs, produce, wait_until):
    reader = make_reader(outputs)
    produce(outputs[0].topic, [("a", "nonsense")])
    with pytest.raises(SerializationException, match="nonsense"):
        read_until(wait_until, reader, lambda: False, "the reader does not complain")


def demo(*arguments):
    return [sys.executable, "-c", "from sparkrelay.cli import main; main()", "demo", *arguments]


def running(folder):
    """Return processes that name the folder in their environment: everything that a demo started there."""
    mark, found = f"TMPDIR={folder}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX" and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_quick_demo_is_exact_and_leaves_nothing_behind(tmp_path, wait_until):
    folder, outcome = tmp_path / "tmp", tmp_path / "demo.json"
    folder.mkdir()
    run = subprocess.run(
        demo("--quick", "--json", str(outcome)),
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    measured = json.loads(outcome.read_text())
    assert measured.keys() >= KEYS
    assert (measured["exact"], measured["lost"], measured["overcounted"]) == (True, 0, 0)
    assert (measured["records"], measured["instances"]) == (FLIGHTS, 2)
    assert "EXACT" in run.stdout
    wait_until(lambda: not running(folder), "processes are left")
    assert not [path for path in folder.iterdir() if path.name.startswith("sparkrelay-")]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_demo_with_executors_is_exact_and_leaves_nothing_behind(tmp_path, wait_until):
    folder, outcome = tmp_path / "tmp", tmp_path / "demo.json"
    folder.mkdir()
    run = subprocess.run(
        demo("--executors", "2", "--json", str(outcome)),
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    measured = json.loads(outcome.read_text())
    assert (measured["exact"], measured["lost"], measured["overcounted"]) == (True, 0, 0)
    assert (measured["executors"], measured["instances"]) == (2, 2)
    assert measured["executor_takeover_s"] > 0
    wait_until(lambda: not running(folder), "processes are left")
    assert not [path for path in folder.iterdir() if path.name.startswith("sparkrelay-")]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.timeout(600)
def test_an_ended_demo_takes_its_children_along(tmp_path, wait_until, number):
    folder = tmp_path / "tmp"
    folder.mkdir()
    with subprocess.Popen(
        demo("--quick"),
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        for line in run.stdout:
            if "the Spark session is up" in line:  # now there is a broker, an instance and its JVM
                break
        assert len(running(folder)) > 3
        run.send_signal(number)
        run.stdout.read()
        code = run.wait(LONG)
    assert code == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    wait_until(lambda: not running(folder), "processes are left")
    if number is not signal.SIGKILL:
        assert not [path for path in folder.iterdir() if path.name.startswith("sparkrelay-")]
