"""A group is upgraded one instance after the other: versions 10 and 11 of the subscription are in it together."""

import json
import logging

import pytest
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.protocol import SpokenVersion
from sparkrelay.runtime.group import group_assignor

from .conftest import active

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

EVERYTHING = {"0_0", "0_1", "0_2", "0_3"}


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", 4), make_topic("counts", 4)


@pytest.fixture
def member(instance, topics, tmp_path, monkeypatch):
    """`member(name, version)` makes an instance whose release knows the versions up to that one; it keeps its state."""

    def make(name, version):
        builder = StreamsBuilder()
        stream = builder.stream(topics[0], key=String("user"), value=Json("n int"))
        stream.groupBy("user").agg(F.count("*").alias("orders")).to(topics[1])
        streams = instance(
            builder, {"num.standby.replicas": 1, "state.dir": str(tmp_path / name), "max.batch.records": 50}
        )
        with monkeypatch.context() as older:
            older.setattr(group_assignor, "SpokenVersion", lambda: SpokenVersion(version, version))
            streams.start()
        return streams

    return make


@pytest.mark.long
def test_ten_becomes_eleven_one_after_the_other(member, topics, produce, wait_for_table, wait_until, consumed, caplog):
    caplog.set_level(logging.INFO, logger="sparkrelay.runtime.group.group_assignor")
    users, rounds = [f"user{n}" for n in range(60)], 0

    def work(*instances):
        nonlocal rounds
        wait_until(lambda: set().union(*map(active, instances)) == EVERYTHING, "not every task runs", 120)
        rounds += 1
        produce(topics[0], [(user, {"n": rounds}) for user in users])
        wait_for_table(topics[1], {user.encode(): {"user": user, "orders": rounds} for user in users}, *instances)

    group = [member(name, 10) for name in ("a", "b")]
    work(*group)
    assert "speaks version" not in caplog.text, "all speak 10"
    speaks = lambda version: f"speaks version {version}" in caplog.text  # noqa: E731 - it is asked three times
    assert group[0].stop(LONG)
    work(group[1])
    group[0] = member("a", 11)
    wait_until(lambda: speaks(10), "the new one does not step down to what all speak", 120)
    work(*group)
    assert not speaks(11)
    assert group[1].stop(LONG)
    # The last old one is gone.
    wait_until(lambda: speaks(11), "who stepped down does not step up again", 120)
    group[1] = member("b", 11)
    work(*group)
    said = {}
    for _, _, key, value in consumed(topics[1]):
        said.setdefault(key, []).append(json.loads(value)["orders"])
    assert said == {user.encode(): list(range(1, rounds + 1)) for user in users}, "each update once, in order"
