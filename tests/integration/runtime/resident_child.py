"""A pipeline on an executor of two cores, as a process of its own: its micro-batches pass through a resident job.

Takes its settings as JSON on the command line; answers with one JSON object on standard output.
"""

import json
import sys
import time

from pyspark.sql import functions as F
from tests.short_spark import SHORT_LIVED
from tests.topics import write

from sparkrelay import Json, KafkaStreams, StreamsBuilder, String, spark_session


def main():
    settings = json.loads(sys.argv[1])
    spark = spark_session("resident", **{"spark.master": "local-cluster[1,2,1024]", **SHORT_LIVED})
    spark.sparkContext.setLogLevel("OFF")
    builder = StreamsBuilder()
    rows = builder.stream(settings["source"], key=String("user"), value=Json("amount long"))
    counted = rows.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    mean = counted.withColumn("mean", F.expr("total / n")).to_stream()
    # Its rows are others each time, so the executor gets them again, and the resident job begins anew.
    names = spark.range(3).selectExpr("'u' || id as user", "'name ' || id as name", "unix_timestamp() as at")
    mean.join(names, "user", refresh="5 seconds").drop("at").to(settings["sink"], key=String("user"), value=Json())
    ways = []
    with KafkaStreams(builder.build(), settings["config"], spark=spark) as streams:
        streams.start()
        for number in range(settings["rows"]):
            write(settings["config"]["bootstrap.servers"], settings["source"], [(f"u{number % 3}", {"amount": number})])
            ways.append(way_of_batch(streams, number))
    spark.stop()
    sys.stdout.write(json.dumps(ways) + "\n")


def way_of_batch(streams, number):
    """Wait for a micro-batch beyond so many, and return whether it passed through a resident job."""
    deadline = time.monotonic() + 120
    while len(found := [one for one in streams.recentProgress if one["numInputRows"]]) <= number:
        assert streams.exception() is None, streams.exception()
        assert time.monotonic() < deadline, f"{len(found)} micro-batches after 120 s: {streams.status}"
        time.sleep(0.01)
    return found[number]["sparkrelay"]["resident"]


if __name__ == "__main__":
    main()
