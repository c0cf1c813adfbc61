"""Starting an application over: announced first, all or nothing, and as from scratch afterwards."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.cli.app import run
from sparkrelay.client.admin import Admin, TopicSpec
from sparkrelay.client.application_admin import ApplicationAdmin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.errors import ConfigException, LockException, StreamsException
from sparkrelay.runtime.instance.reset import ResetRequest, Resetter
from sparkrelay.state import Slot
from sparkrelay.types import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def pipeline(source, sink, aggregate=F.count):
    """One store behind the source, one behind a repartition topic."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string, n int"))
    stream.groupBy("user").agg(aggregate("n").alias("n"), name="users").to(sink)
    stream.groupBy("shop").agg(aggregate("n").alias("n"), name="shops").to(sink)
    return builder


ROWS = [(f"u{n % 3}", {"shop": f"s{n % 2}", "n": n}) for n in range(12)]


def expected(aggregate):
    table = {}
    for kind, of in (("user", lambda key, value: key), ("shop", lambda key, value: value["shop"])):
        groups = {}
        for key, value in ROWS:
            groups.setdefault(of(key, value), []).append(value["n"])
        table |= {name.encode(): {kind: name, "n": aggregate(ns)} for name, ns in groups.items()}
    return table


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 2), make_topic("out", 1)


@pytest.fixture
def client(kafka):
    with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
        client.bootstrap(30)
        yield client


@pytest.fixture
def resetter(client, application_id, tmp_path):
    (tmp_path / "state").mkdir(exist_ok=True)
    return Resetter(client, ResetRequest(application_id=application_id, state_dir=tmp_path / "state"))


@pytest.fixture
def command(kafka, application_id, tmp_path, capsys):
    """`command(*options)` runs `sparkrelay reset` on the test's application: code, output, errors."""

    def reset(*options, application=application_id):
        where = ["--bootstrap-servers", kafka.bootstrap_servers, "--state-dir", str(tmp_path / "state")]
        capsys.readouterr()
        code = run(["reset", "--application-id", application, *where, *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return reset


@pytest.fixture
def ran_before(instance, topics, produce, wait_for_table):
    produce(topics[0], ROWS)
    with instance(pipeline(*topics)) as streams:
        streams.start()
        wait_for_table(topics[1], expected(len), streams)


@pytest.fixture
def seen(client, application_id, tmp_path):
    """`seen()`: all that a reset could change, but for the times of files."""

    def look():
        topics = {name for name in Admin(client).list_topics() if name.startswith(application_id)}
        files = {path: path.stat().st_size for path in (tmp_path / "state").rglob("*")}
        return topics, files, ApplicationAdmin(client, application_id).offsets()

    return look


def test_it_is_announced_first_and_then_all_is_as_from_scratch(
    ran_before, topics, command, seen, application_id, instance, wait_for_table, tmp_path
):
    before = seen()
    code, out, err = command()
    assert (code, err) == (0, "")
    ends = {at.partition: offset for at, offset in before[2].items() if at.topic == topics[0]}
    assert {f"  {topics[0]}-{n}: offset {end} -> 0 (earliest)" for n, end in ends.items()} <= set(out.splitlines())
    for name in ("users-changelog", "shops-changelog", "shops-repartition"):
        assert f"  topic {application_id}-{name}: deleted" in out
    assert f"  {tmp_path / 'state' / application_id / '0' / '0_0'}: removed" in out
    assert out.endswith("nothing was changed; add --execute to do it\n")
    assert seen() == before

    code, out, err = command("--execute")
    assert (code, err) == (0, ""), err
    left, files, offsets = seen()
    assert left == set()
    assert {path.name for path in files} == {application_id, "0", ".lock", "process.json"}
    assert offsets == {TopicPartition(topics[0], 0): 0, TopicPartition(topics[0], 1): 0}

    # Another aggregate under the stores' old names: any remainder of the old state would be refused, or counted in.
    with instance(pipeline(*topics, aggregate=F.sum)) as streams:
        streams.start()
        wait_for_table(topics[1], expected(sum), streams)


@pytest.mark.long
def test_only_what_comes_from_now_on(ran_before, topics, command, instance, produce, wait_for_table, make_topic):
    sink = make_topic("out", 1)
    assert command("--to", "latest", "--execute")[0] == 0
    produce(topics[0], [("new", {"shop": "none", "n": 7})])
    with instance(pipeline(topics[0], sink)) as streams:
        streams.start()
        wait_for_table(sink, {b"new": {"user": "new", "n": 1}, b"none": {"shop": "none", "n": 1}}, streams)


def test_who_runs_is_not_pulled_away_under(topics, instance, resetter, command, wait_until, seen, application_id):
    streams = instance(pipeline(*topics))
    streams.start()
    wait_until(lambda: streams.state == "RUNNING", "the instance does not run")
    code, _, err = command("--execute")
    assert code == 1
    assert f"application '{application_id}' is running; its group has members: " in err
    before = seen()
    with pytest.raises(StreamsException, match="its group has members"):
        # Somebody joined after the first look.
        resetter._carry_out(lambda step: None)
    assert seen() == before
    assert streams.stop(LONG)


def test_a_slot_in_use_is_refused(ran_before, resetter, tmp_path, application_id, seen):
    slot = Slot.claim(tmp_path / "state", application_id)
    before = seen()
    try:
        with pytest.raises(LockException, match=rf"0 by process {os.getpid()} on host .*Stop it first"):
            resetter.carry_out(lambda step: None)
    finally:
        slot.release()
    assert seen() == before


KILLED = textwrap.dedent("""
    import os, pathlib, signal, sys
    from sparkrelay.client.config import ClientConfig
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.runtime.instance.reset import ResetRequest, Resetter
    servers, application, state_dir, last = sys.argv[1:]
    steps = 0
    def on_step(step):
        global steps
        steps += 1
        if steps == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
    with KafkaClient(ClientConfig(bootstrap_servers=servers)) as client:
        client.bootstrap(30)
        Resetter(client, ResetRequest(application_id=application, state_dir=pathlib.Path(state_dir))).carry_out(on_step)
""")


@pytest.mark.long
def test_killed_in_the_middle(
    ran_before, topics, kafka, application_id, tmp_path, instance, command, produce, wait_for_table, project_root
):
    for step in range(1, 6):
        arguments = [kafka.bootstrap_servers, application_id, str(tmp_path / "state"), str(step)]
        environment = {**os.environ, "PYTHONPATH": str(project_root / "src")}
        killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], timeout=120, env=environment, check=False)
        assert killed.returncode == -signal.SIGKILL, f"step {step}"
        with pytest.raises(StreamsException, match="sparkrelay reset was interrupted"):
            instance(pipeline(*topics)).start()
    code, out, _ = command("--execute")
    assert code == 0
    assert "an earlier reset was interrupted; this one continues it" in out
    with instance(pipeline(*topics, aggregate=F.sum)) as streams:
        streams.start()
        wait_for_table(topics[1], expected(sum), streams)


@pytest.mark.long
def test_an_owner_that_was_only_stopped_cannot_commit_any_more(kafka, ran_before, topics, resetter, application_id):
    zombie = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{application_id}-0_0"})
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce(topics[1], b"late", b"{}")
    zombie.flush(30)
    resetter.carry_out(lambda step: None)
    with pytest.raises(KafkaException, match=r"(?i)fenced|epoch"):
        zombie.commit_transaction(30)


@pytest.mark.long
def test_topics_that_may_be_of_another_application(ran_before, command, application_id, client, topics, seen):
    other = f"{application_id}-shops"
    ApplicationAdmin(client, other).set_offsets({TopicPartition(topics[0], 0): 1})
    before = seen()
    code, _, err = command("--execute")
    assert code == 1
    assert f"{application_id}-shops-changelog (group {other})" in err
    assert seen() == before
    own = [f"{application_id}-{name}" for name in ("users-changelog", "shops-changelog", "shops-repartition")]
    assert command("--internal-topics", ",".join(own), "--execute")[0] == 0
    assert seen()[0] == set()
    assert ApplicationAdmin(client, other).offsets() == {TopicPartition(topics[0], 0): 1}


HYPHENS = ("by-user-changelog", "by-shop-changelog", "by-shop-repartition")


def hyphens(source, sink):
    """Stores that are called as they are if nobody names them."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string, n int"))
    stream.groupBy("user").agg(F.count("n").alias("n"), name="by-user").to(sink)
    stream.groupBy("shop").agg(F.count("n").alias("n"), name="by-shop").to(sink)
    return builder


@pytest.mark.long
def test_a_neighbour_that_the_broker_has_forgotten_keeps_its_topics(
    instance, topics, produce, wait_for_table, command, application_id, client, seen, tmp_path
):
    produce(topics[0], ROWS)
    with instance(hyphens(*topics)) as streams:
        streams.start()
        wait_for_table(topics[1], expected(len), streams)
    own = {f"{application_id}-{name}" for name in HYPHENS}
    # Its own local state, or the group's offsets, say whose they are.
    code, out, err = command()
    assert (code, err) == (0, "")
    assert all(f"  topic {topic}: deleted" in out for topic in own)
    neighbours = f"{application_id}-eu-users-changelog"
    Admin(client).create_topics({neighbours: TopicSpec(1)})
    before = seen()
    code, out, err = command("--execute")
    assert code == 1
    assert f": {neighbours} (or of an application {application_id}-eu). Name its own ones" in err
    assert f"--internal-topics {','.join(sorted({*own, neighbours}))}" in err
    assert seen() == before
    blind = Resetter(client, ResetRequest(application_id=application_id))
    without_state = blind.look()
    # Of one store the group has read the repartition topic; of the other, nothing is known from here.
    assert set(without_state.doubtful) == {neighbours, f"{application_id}-by-user-changelog"}
    with pytest.raises(ConfigException, match="Give --state-dir on a host with local state, or name its own ones"):
        blind.require_possible(without_state)
    assert command("--internal-topics", ",".join(own), "--execute")[0] == 0
    assert seen()[0] == {neighbours}


@pytest.fixture
def pretended(client, application_id):
    """An application that has not run on this host: topics and offsets, no state."""
    source, own = f"{application_id}.in", f"{application_id}-users-changelog"
    Admin(client).create_topics({source: TopicSpec(1), own: TopicSpec(1)})
    ApplicationAdmin(client, application_id).set_offsets({TopicPartition(source, 0): 0})
    return source


@pytest.mark.long
@pytest.mark.parametrize("step", range(1, 6))
def test_of_two_resets_at_once_the_later_one_does_it_all(step, pretended, client, application_id):
    request = ResetRequest(application_id=application_id)
    earlier, later = [], []

    def begin_another(done):
        earlier.append(done)
        if len(earlier) == step:
            Resetter(client, request).carry_out(later.append)

    with pytest.raises(
        StreamsException, match=f"another sparkrelay reset of application '{application_id}' was started"
    ):
        Resetter(client, request).carry_out(begin_another)
    assert len(earlier) == step
    assert len(later) == 6
    assert {name for name in Admin(client).list_topics() if name.startswith(application_id)} == {pretended}
    assert ApplicationAdmin(client, application_id).offsets() == {TopicPartition(pretended, 0): 0}


def test_a_broker_that_lags_behind_the_others_is_waited_for(pretended, client, application_id, monkeypatch):
    """It does not show the topic that another one has just created."""
    partitions, marker = client.metadata.partitions, f"{application_id}-sparkrelay-reset"
    lagging = itertools.cycle([True, True, False])

    def shown(name):
        return None if name == marker and next(lagging) else partitions(name)

    monkeypatch.setattr(client.metadata, "partitions", shown)
    steps = []
    Resetter(client, ResetRequest(application_id=application_id)).carry_out(steps.append)
    assert len(steps) == 6


@pytest.mark.long
def test_a_reset_that_is_overtaken_in_the_middle_of_another_one_leaves_the_marker(pretended, client, application_id):
    """The later one is not through when the earlier one goes on: nobody may start yet."""
    request = ResetRequest(application_id=application_id)

    class PausedError(Exception):
        pass

    def pause(_):
        raise PausedError

    def begin_another(_):
        with pytest.raises(PausedError):
            Resetter(client, request).carry_out(pause)

    with pytest.raises(StreamsException, match="another sparkrelay reset"):
        Resetter(client, request).carry_out(begin_another)
    assert f"{application_id}-sparkrelay-reset" in Admin(client).list_topics()
    Resetter(client, request).carry_out(lambda _: None)
    assert f"{application_id}-sparkrelay-reset" not in Admin(client).list_topics()


@pytest.mark.long
@pytest.mark.parametrize("step", range(1, 6))
def test_who_joins_in_the_middle_is_named_and_nothing_goes_on(step, pretended, client, application_id, kafka):
    steps = []
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": application_id}
    consumer = Consumer(settings)

    def join(done):
        steps.append(done)
        if len(steps) == step:
            joined = threading.Event()
            consumer.subscribe([pretended], on_assign=lambda *_: joined.set())
            while not joined.is_set():
                consumer.poll(0.1)

    try:
        with pytest.raises(StreamsException, match=r"joined application .* Stop it and run sparkrelay reset again"):
            Resetter(client, ResetRequest(application_id=application_id)).carry_out(join)
    finally:
        consumer.close()
    assert len(steps) == step
    assert f"{application_id}-sparkrelay-reset" in Admin(client).list_topics()


def test_what_is_not_there(command, topics, application_id, tmp_path):
    Path(tmp_path / "state").mkdir()
    code, _, err = command()
    assert code == 1
    assert (
        "there is nothing to start over: this Kafka has no group and no internal topic of application "
        f"'{application_id}'" in err
    )
    assert "topic 'nowhere' does not exist" in command("--topics", "nowhere")[2]
    assert "'nowhere' does not begin with" in command("--internal-topics", "nowhere")[2]


@pytest.mark.parametrize("named", [False, True], ids=["found", "named"])
def test_a_source_that_is_called_like_a_changelog_is_read_anew_and_not_deleted(client, application_id, kafka, named):
    source, own = f"{application_id}-db-changelog", f"{application_id}-users-changelog"
    admin = Admin(client)
    admin.create_topics({source: TopicSpec(1), own: TopicSpec(1)})
    if not named:
        ApplicationAdmin(client, application_id).set_offsets({TopicPartition(source, 0): 0})
    request = ResetRequest(application_id=application_id, topics=(source,) if named else None)
    plan = Resetter(client, request).look()
    assert plan.internal_topics == (own,)
    assert list(plan.offsets) == [TopicPartition(source, 0)]
    assert not plan.forgotten


def test_topics_that_are_not_named_keep_their_offsets(client, application_id, topics):
    application = ApplicationAdmin(client, application_id)
    application.set_offsets({TopicPartition(topics[0], 0): 0, TopicPartition(topics[1], 0): 0})
    plan = Resetter(client, ResetRequest(application_id=application_id, topics=(topics[0],), to="latest")).look()
    assert dict(plan.offsets) == {TopicPartition(topics[0], 0): (0, 0), TopicPartition(topics[0], 1): (None, 0)}
    assert dict(plan.kept) == {TopicPartition(topics[1], 0): 0}


def test_a_name_that_is_none():
    with pytest.raises(ConfigException, match=r"application\.id '\.\.'"):
        ResetRequest(application_id="..")
