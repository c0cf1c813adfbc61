"""What an instance refuses before it looks at Spark."""

import pytest

from sparkrelay import KafkaStreams, StreamsBuilder
from sparkrelay.errors import ConfigException, TopologyException

pytestmark = pytest.mark.usefixtures("spark")

CONFIG = {"application.id": "app", "bootstrap.servers": "localhost:1"}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num.standby.replica": 1}, "num.standby.replica=1 of an instance; did you mean 'num.standby.replicas'"),
        ({"num.standby.replicas": -1}, "num.standby.replicas=-1 is out of range"),
        ({"max.batch.records": "many"}, "max.batch.records='many' is not a valid whole number"),
        ({"session.timeout.ms": 1000, "heartbeat.interval.ms": 900}, r"heartbeat.interval.ms \(900\)"),
        ({"processing.guarantee": "exactly_twice"}, "processing.guarantee='exactly_twice' is not a setting"),
        ({"application.id": "no/slash"}, "application.id='no/slash': use 1 to 200"),
        ({"bootstrap.servers": "nowhere"}, "'nowhere' is not HOST:PORT"),
        ({"task.assignor.class": "no.such:Assignor"}, "no.such:Assignor"),
        (
            {"task.assignor.clas": "mine"},
            "HighAvailabilityTaskAssignor has no setting.*did you mean 'task.assignor.class'",
        ),
        (
            {"task.assignor.class": "sparkrelay.assignors:ElasticsearchTaskAssignor"}
            | {"task.assignor.elasticsearch.balance.indx": 1},
            "did you mean 'task.assignor.elasticsearch.balance.index'",
        ),
        ({"consumer.fetch.min.byte": 1}, "fetch.min.byte=1.*did you mean 'fetch.min.bytes'"),
        ({"consumer.group.id": "mine"}, "'consumer.group.id'.*set 'application.id' instead"),
        ({"consumer.isolation.level": "read_uncommitted"}, "'consumer.isolation.level'.*needs 'read_committed'"),
        ({"producer.acks": 1}, "'producer.acks' has the value 1: it is always 'all'"),
        ({"producer.compression.type": "zip"}, "compression.type='zip' is unknown"),
        ({"producer.compresion.type": "lz4"}, "producer.compresion.type='lz4'.*did you mean 'compression.type'"),
        ({"admin.retries": 7}, "retries=7"),
    ],
)
def test_settings(config, words):
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    with pytest.raises(ConfigException, match=words):
        KafkaStreams(builder.build(), CONFIG | config, spark=None)


def test_a_builder_is_not_a_topology():
    with pytest.raises(TopologyException, match=r"not a StreamsBuilder: pass builder\.build\(\)"):
        KafkaStreams(StreamsBuilder(), CONFIG, spark=None)
