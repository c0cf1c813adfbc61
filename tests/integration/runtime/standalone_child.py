"""A script as a user has it, for a standalone cluster; the session's settings come from whoever starts it.

Takes JSON on the command line, prints how its instance has ended.
"""

import json
import sys
import time

from pyspark.sql import functions as F
from tests.topics import read_to_end

from sparkrelay import Json, KafkaStreams, StreamsBuilder, String, spark_session
from sparkrelay.errors import SparkRelayError


def main():
    settings = json.loads(sys.argv[1])
    spark = spark_session("standalone", **settings["spark"])
    builder = StreamsBuilder()
    numbers = builder.stream(settings["source"], key=String("name"), value=Json("n long"))
    numbers.groupBy("name").agg(F.sum("n").alias("total")).to(settings["sink"])
    streams = KafkaStreams(builder.build(), settings["config"], spark=spark)
    try:
        streams.start()
        while streams.state != "ERROR" and not done(settings):
            time.sleep(0.1)
        streams.stop()
        streams.awaitTermination()
        print(streams.state)
    except SparkRelayError as error:
        print(f"{type(error).__name__}: {error}")
    spark.stop()


def done(settings):
    servers = settings["config"]["bootstrap.servers"]
    totals = {message.key(): json.loads(message.value()) for message in read_to_end(servers, settings["sink"])}
    return totals.get(b"all", {}).get("total") == settings["total"]


if __name__ == "__main__":
    main()
