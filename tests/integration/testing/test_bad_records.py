"""Records that do not decode, and records whose text looks like a report of a worker."""

import base64
import secrets
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import SerializationException, StreamsException
from sparkrelay.testing import TopologyTestDriver
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def test_a_record_that_does_not_decode_is_skipped(spark):
    deep = f'{{"n": 5, "note": {"[" * 600}{"]" * 600}}}'.encode()
    bad = [("a", value) for value in (b"{oh", {"n": "two"}, deep)]
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=String("user"), value=Json("n int, note string"))
    counts = F.count("*").alias("count"), F.sum("n").alias("sum"), F.count("note").alias("notes")
    numbers.groupBy("user").agg(*counts).to("out")
    skipping = {"deserialization.exception.handler": "log-and-continue"}
    with TopologyTestDriver(builder.build(), skipping, spark=spark, batch="all", partitions=2) as driver:
        driver.create_input_topic("in").pipe_rows([("a", {"n": 1}), *bad, ("a", {"n": 3})])
        assert driver.create_output_topic("out").read_rows() == [{"user": "a", "count": 2, "sum": 4, "notes": 0}]


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("text int", lambda: F.col("text")),
        ("text string", lambda: F.udf(int, "int")("text")),
        ("text string", lambda: F.expr("CAST(text AS int)")),
    ],
    ids=["json", "udf", "cast"],
)
def test_what_a_record_says_is_never_run(spark, schema, column):
    # Short, because messages cut long values: a pickle that makes a directory where it is read.
    made = Path(tempfile.gettempdir(), secrets.token_hex(4))
    pickled = base64.b64encode(f"(cos\nmkdir\n(S'{made}'\ntRNt.".encode()).decode()
    marks = [f"[sparkrelay-error:{pickled}]", f"[sparkrelay-failure:{pickled.rstrip('=')}:{'0' * 64}]"]
    builder = StreamsBuilder()
    texts = builder.stream("in", key=String("user"), value=Json(schema))
    texts.groupBy("user").agg(F.max(column()).alias("most")).to("out")
    with TopologyTestDriver(builder.build(), {"max.batch.retries": 1}, spark=spark, batch="all") as driver:
        driver.create_input_topic("in").pipe_input("a", {"text": "".join(marks)})
        with pytest.raises((StreamsException, SerializationException), match=r"sparkrelay-error:"):
            driver.process()
        assert not made.exists()
        # Reading the topic as users do would have the pipeline try again.
        assert driver._log.end(TopicPartition("out", 0)) == 0
