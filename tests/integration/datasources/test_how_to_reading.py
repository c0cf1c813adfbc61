"""The scripts of docs/how-to about reading tables and topics run as they stand there."""

import pytest
from pyspark.sql import functions as F
from tests.docs_pages import run
from tests.ports import own_port

from sparkrelay import Json, StreamsBuilder, String

pytestmark = pytest.mark.integration


def test_the_page_s_tables_and_topics_are_read(
    spark, kafka, instance, make_topic, produce, consumed, wait_until, application_id
):
    names = run("Read tables and topics from any Spark application")
    topic, out = make_topic("sales"), make_topic("totals")
    produce(topic, [("ada", {"n": 3}), ("bob", {"n": 1}), ("ada", {"n": 4})])
    builder = StreamsBuilder()
    counts = builder.stream(topic, key=String("user"), value=Json("n long")).groupBy("user")
    counts.agg(F.sum("n").alias("total"), name="totals").to(out)
    server, token = f"127.0.0.1:{own_port()}", "a-token"
    instance(builder, {"application.server": server, "queries.token": token}).start()
    wait_until(lambda: len({key for _, _, key, _ in consumed(out)}) == 2, "no totals")
    rows = names["table"](spark, kafka.bootstrap_servers, application_id, "totals").collect()
    assert sorted(map(tuple, rows)) == [("ada", 7), ("bob", 1)]
    rows = names["live_table"](spark, server, "totals", token).collect()
    assert sorted(map(tuple, rows)) == [("ada", 7), ("bob", 1)]
    records = names["records"](spark, kafka.bootstrap_servers, topic).orderBy("offset").collect()
    assert [(row.key, row.value) for row in records][:2] == [("ada", '{"n": 3}'), ("bob", '{"n": 1}')]
