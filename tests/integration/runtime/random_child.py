"""One instance of a round's random pipelines as a process of its own, which a test kills.

Takes its settings as JSON on the command line. The round is made anew of its seed, and must be the test's.
"""

import json
import logging
import sys

from tests.integration.runtime.random_pipelines import Round
from tests.short_spark import SHORT_LIVED

from sparkrelay import KafkaStreams, spark_session


def main():
    settings = json.loads(sys.argv[1])
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    zone = {"spark.sql.session.timeZone": settings["zone"]}
    spark = spark_session("random", **{"spark.master": "local[2]", **SHORT_LIVED, **zone})
    spark.sparkContext.setLogLevel("ERROR")
    this = Round(settings["seed"], settings["pipelines"])
    assert str(this) == settings["round"], f"another round than the test's:\n{this}"
    topology = this.builder(settings["source"], settings["sinks"]).build()
    streams = KafkaStreams(topology, settings["config"], spark=spark)
    streams.start()
    streams.awaitTermination()


if __name__ == "__main__":
    main()
