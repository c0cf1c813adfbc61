"""Local state that is damaged, full, gone or foreign: nothing is lost, and what to do is said."""

import json
import os
import re
import shutil

import pytest
from confluent_kafka import Producer
from tests.waiting import remove_folder

from sparkrelay.errors import SerializationException, StateStoreException, StoreFullException, StreamsException
from sparkrelay.state import TaskStore

from .long_texts import SIZE, Users, keeping

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 1), make_topic("out", 1)


@pytest.fixture
def users(produce, topics):
    return Users(produce, topics[0])


@pytest.fixture
def task_dir(tmp_path, application_id):
    return tmp_path / "state" / application_id / "0" / "0_0"


@pytest.fixture
def ran_before(instance, topics, users, wait_for_table, monkeypatch):
    # A copy goes on from the end of its changelog that was listed last, which is once in a while.
    monkeypatch.setattr("sparkrelay.runtime.batch.looks._CHANGELOGS_SECONDS", 0.0)
    users.write(0, 100)
    with instance(keeping(*topics)) as streams:
        streams.start()
        wait_for_table(topics[1], users.table, streams)
        # A restart writes the rows of the last batch again, from the changelog: the others are read as they are.
        users.write(200, 201)
        wait_for_table(topics[1], users.table, streams)


def damage(task_dir):
    file = task_dir / "data.mdb"
    with file.open("r+b") as data:
        # Both of LMDB's root pages.
        data.write(b"\xff" * 8192)


def of_an_older_release(task_dir):
    store = TaskStore.open(task_dir)
    data = b"\x02" + store.header.encode()[1:]
    store._environment.write(lambda t: t.put(b"header", data, db=store._environment.database("#meta").handle))
    store.close(clean=False)


def turn_a_bit_of_each_row(task_dir):
    file = task_dir / "data.mdb"
    # In place: the processes that have it open must not see it shorter for a moment.
    with file.open("r+b") as data:
        for match in re.finditer(rb"x{500,}", file.read_bytes()):
            data.seek(match.start())
            data.write(b"y")


def a_row_as_it_was_before(task_dir):
    """Not closed, and with a row in it that was true once: what is left of a page that was not written."""
    store = TaskStore.open(task_dir)
    table = store._table("users")
    old = table.seal(b"u1", b"\x00" * 20)
    assert store._environment.write(lambda t: t.replace(b"u1", old, db=table.handle)) is not None
    store.take_over(1)
    store.close(clean=False)


def cut_short(task_dir):
    os.truncate(task_dir / "data.mdb", 8192)


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damage, "cannot be read"),
        (of_an_older_release, r"has version 2, this SparkRelay reads \[7\]"),
        (turn_a_bit_of_each_row, "the row under key .* of table 's:users' does not have the checksum it had"),
        (a_row_as_it_was_before, "rows of table 's:users' are missing, or have reverted to an earlier state"),
    ],
)
def test_what_cannot_be_used_is_set_aside_and_rebuilt(
    spoil, words, ran_before, task_dir, instance, topics, users, wait_for_table, caplog
):
    spoil(task_dir)
    users.write(50, 150, SIZE + 1)
    with instance(keeping(*topics)) as streams:
        streams.start()
        wait_for_table(topics[1], users.table, streams)
        assert streams.snapshot().totals.errors["state"] == 1
    aside = task_dir.with_name("0_0.corrupt-1")
    assert (aside / "data.mdb").exists()
    (logged,) = (r for r in caplog.records if r.levelname == "ERROR" and "is set aside as" in r.getMessage())
    assert re.search(words, logged.getMessage())
    assert f"{aside.parent / '0_0'}.corrupt-" in logged.getMessage()


@pytest.mark.parametrize(
    "spoil", [pytest.param(of_an_older_release, marks=pytest.mark.long), turn_a_bit_of_each_row, cut_short]
)
def test_a_store_that_is_damaged_while_it_runs(task_dir, instance, topics, users, wait_for_table, caplog, spoil):
    users.write(0, 100)
    streams = instance(keeping(*topics))
    streams.start()
    wait_for_table(topics[1], users.table, streams)
    spoil(task_dir)
    users.write(50, 200)
    wait_for_table(topics[1], users.table, streams)
    assert task_dir.with_name("0_0.corrupt-1").exists()
    assert any(r.levelname == "ERROR" and "task 0_0: local state" in r.getMessage() for r in caplog.records)


@pytest.fixture
def write_changelog(kafka, application_id):
    """`write_changelog(key, value)`: what another release, or something else, writes there."""

    def write(key, value):
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(f"{application_id}-users-changelog", value, key)
        assert producer.flush(30) == 0

    return write


@pytest.mark.long
def test_a_changelog_record_of_a_newer_release_is_said_and_costs_no_state(
    ran_before, write_changelog, instance, topics, fails_with, task_dir, application_id
):
    write_changelog(b"u1", b"\x02of a newer release")
    before = (task_dir / "data.mdb").stat().st_ino
    for _ in range(2):
        streams = instance(keeping(*topics))
        streams.start()
        words = (
            rf"changelog topic '{application_id}-users-changelog', partition 0, offset \d+ cannot be read: the value "
            r"of key b'u1' begins with b'\\x02', this SparkRelay reads version b'\\x01'.* Install that release"
        )
        fails_with(streams, SerializationException, words)
    assert (task_dir / "data.mdb").stat().st_ino == before
    assert not list(task_dir.parent.glob("*.corrupt-*"))


@pytest.mark.long
def test_a_state_of_a_newer_release_is_rebuilt_once_and_then_said(
    ran_before, write_changelog, users, instance, topics, fails_with, task_dir
):
    write_changelog(b"u1", b"\x01\x09an aggregate of a newer release")
    users.write(0, 2)
    streams = instance(keeping(*topics))
    streams.start()
    fails_with(streams, StreamsException, r"task 0_0: its state was rebuilt from .*-users-changelog and still .* newer")
    assert len(list(task_dir.parent.glob("*.corrupt-*"))) == 1


@pytest.mark.long
def test_a_store_at_its_bound_stops_and_goes_on_with_a_higher_one(
    instance, topics, users, wait_for_table, fails_with, task_dir, consumed
):
    users.write(0, 400)
    bounded = {"store.max.bytes": 1 << 20, "max.batch.records": 100}
    streams = instance(keeping(*topics), bounded)
    streams.start()
    words = rf"^task 0_0: the state in {task_dir} has \d+ bytes and has reached store\.max\.bytes=1048576\. .* Raise"
    fails_with(streams, StoreFullException, words)
    assert task_dir.exists()
    assert not task_dir.with_name("0_0.corrupt-1").exists()
    again = instance(keeping(*topics), bounded)
    again.start()
    fails_with(again, StoreFullException, words)
    enough = instance(keeping(*topics), {**bounded, "store.max.bytes": 8 << 20})
    enough.start()
    wait_for_table(topics[1], users.table, enough)
    keys = [key for _, _, key, _ in consumed(topics[1])]
    assert sorted(keys) == sorted(set(keys)), "an output was seen twice"


@pytest.mark.long
@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_state_dir_is_pulled_away_under_an_instance(
    replaced, instance, topics, users, wait_for_table, fails_with, tmp_path, application_id
):
    users.write(0, 100)
    streams = instance(keeping(*topics))
    streams.start()
    wait_for_table(topics[1], users.table, streams)
    home = tmp_path / "state"
    if replaced:
        shutil.copytree(home, tmp_path / "copy")
        home.rename(tmp_path / "old")
        (tmp_path / "copy").rename(home)
    else:
        remove_folder(home)
    fails_with(streams, StateStoreException, "was removed or replaced while this instance used it")
    users.write(50, 150, SIZE + 1)
    again = instance(keeping(*topics))
    again.start()
    wait_for_table(topics[1], users.table, again)


@pytest.mark.long
def test_two_instances_of_one_copied_state_are_two(ran_before, instance, topics, users, wait_for_table, tmp_path):
    shutil.copytree(tmp_path / "state", tmp_path / "copied")
    one = instance(keeping(*topics))
    other = instance(keeping(*topics), {"state.dir": str(tmp_path / "copied")})
    one.start()
    other.start()
    users.write(50, 150, SIZE + 1)
    wait_for_table(topics[1], users.table, one, other)
    ids = {json.loads(file.read_text())["processId"] for file in tmp_path.glob("*/*/0/process.json")}
    assert len(ids) == 2
