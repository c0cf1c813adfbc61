"""Archives of the classes that Spark's and Kafka's JVMs load: with one, a start takes half of its CPU (JEP 350).

A test run starts more than a hundred JVMs. `make test` has the archives made once for a virtual environment, by
`python -m tests.class_archives`. Where there are none, or Java finds them made for other jars, classes are loaded from
their jars, as always.
"""

import logging
import sys
import tempfile
from pathlib import Path

FOLDER = Path(sys.prefix) / "class-archives"

#: What Java says of an archive that does not fit, nobody reads; and children of tests speak on standard output.
_QUIETLY = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")

log = logging.getLogger("class_archives")


def options(name):
    """Return the options by which a JVM uses an archive, `spark` or `kafka`; none where it was not made."""
    archive = FOLDER / f"{name}.jsa"
    return [*_QUIETLY, f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def _made(name):
    return FOLDER / f"{name}.new"


def _dump(name):
    """Return the options by which a JVM writes an archive of what it has loaded, when it ends."""
    return [*_QUIETLY, f"-XX:ArchiveClassesAtExit={_made(name)}"]


def make():
    """Make both archives, by a small pipeline on a broker."""
    from sparkrelay.devkafka import DevKafka

    class Dumping(DevKafka):
        def _jvm_options(self):
            return [*super()._jvm_options(), *_dump("kafka")]

        def _format(self, command, settings):
            # Another JVM, whose archive the broker's would replace.
            super()._format([word for word in command if word not in _dump("kafka")], settings)

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Dumping() as kafka:
        _run_pipeline(kafka, folder)
        kafka.stop()
    for name in ("kafka", "spark"):
        # A Java that makes none is no reason to fail: tests take longer then.
        if _made(name).exists():
            _made(name).rename(FOLDER / f"{name}.jsa")
        else:
            log.warning("Java has made no archive of %s's classes.", name)


def _run_pipeline(kafka, folder):
    from pyspark.sql import functions as F
    from tests.short_spark import JAVA, SHORT_LIVED
    from tests.topics import read_to_end, write
    from tests.waiting import wait_until

    from sparkrelay import Json, KafkaStreams, StreamsBuilder, String, spark_session
    from sparkrelay.devkafka.topics import create_topic

    servers = kafka.bootstrap_servers
    for topic in ("orders", "shops", "marks"):
        create_topic(servers, topic, partitions=2)
    java = {"spark.driver.extraJavaOptions": " ".join([JAVA, *_dump("spark")])}
    spark = spark_session("class-archives", **{"spark.master": "local[2]", **SHORT_LIVED, **java})
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=Json("shop string, amount long, time timestamp"))
    sums = F.count("*").alias("n"), F.sum("amount").alias("total")
    orders.groupBy("shop", F.window("time", "1 day")).agg(*sums).to_stream().where("n > 0").to("shops")
    orders.where("amount % 2 = 0").select("shop", F.lit("even").alias("why")).to("marks", value=Json())
    config = {"application.id": "class-archives", "bootstrap.servers": servers, "state.dir": folder}
    with KafkaStreams(builder.build(), config, spark=spark, quiet=True) as streams:
        streams.start()
        value = {"shop": "a", "amount": 2, "time": "2013-01-01T00:00:00Z"}
        write(servers, "orders", [(f"user{n}", value) for n in range(10)])
        wait_until(lambda: all(list(read_to_end(servers, topic)) for topic in ("shops", "marks")), "no results")
    spark.createDataFrame([(1, "a")], "n long, text string").groupBy("text").count().collect()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    make()
