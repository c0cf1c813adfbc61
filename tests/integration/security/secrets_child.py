"""An instance with marked secrets: it runs, is asked for all that it shows, fails, and prints everything.

Run by `test_secrets` as a script of its own, with its settings as JSON on standard input.
"""

import contextlib
import json
import logging
import os
import sys
import time
import traceback
import urllib.request
from pathlib import Path
from types import SimpleNamespace

from confluent_kafka import Producer
from pyspark.sql import functions as F

from sparkrelay import Json, KafkaStreams, StreamsBuilder, String, spark_session
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.contract import failure_marks

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
options = json.loads(sys.stdin.read())
#: The key that signs errors of workers, and opens channels to resident jobs.
failure_marks.secrets = SimpleNamespace(token_bytes=lambda length: options["key"].encode().ljust(length, b"."))
config, sink = options["config"], options["sink"]


def page(address):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode("utf-8", "replace")


def pipeline(column):
    builder = StreamsBuilder()
    stream = builder.stream(options["source"], key=String("user"), value=Json("n int"))
    stream.groupBy("user").agg(F.sum(column).alias("s")).to(sink, value=Json())
    return builder.build()


def refused(changed):
    """Say how an instance with other settings fails to start."""
    try:
        KafkaStreams(pipeline("n"), config | changed, spark=spark).start()
    except SparkRelayError as error:
        traceback.print_exception(error, file=sys.stdout)
        return
    raise AssertionError(f"{changed} was not refused")


def family():
    """Yield the processes that this one has started, and those that these have, and itself."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    known = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= more
    return sorted(known)


spark = spark_session("secrets", **{"spark.master": "local[2]", "spark.ui.port": "0", **options["spark"]})
read = StreamsConfig.from_dict(config)
print(repr(read), str(read), read.security, read.consumer, read.producer, read.admin)
streams = KafkaStreams(pipeline(F.expr("12 / n")), config, spark=spark)
print(repr(streams), vars(streams), vars(streams._context))
streams.start()
while not (streams.lastProgress and streams.lastProgress["numInputRows"]):
    time.sleep(0.05)
    assert streams.isActive, streams.exception()
print(streams.lastProgress, streams.metadata_for_local_threads(), streams.snapshot(), streams.status)
for thread in streams._threads:
    print(repr(thread), vars(thread))
ui = spark.sparkContext.uiWebUrl
api = f"{ui}/api/v1/applications/{spark.sparkContext.applicationId}"
shown = ["/environment/", "/jobs/", "/stages/", "/SQL/", "/executors/"]
rest = ["/environment", "/jobs", "/stages?details=true", "/sql?details=true&planDescription=true", "/allexecutors"]
for address in [ui + path for path in shown] + [api + path for path in rest]:
    print(address, page(address))
for path in ("/metrics", "/health", "/", "/api/instance", "/api/group"):
    print(page(f"http://127.0.0.1:{config['metrics.port']}{path}"))
seen = 0
for pid in family():
    with contextlib.suppress(OSError):
        for name in ("cmdline", "environ"):
            print(pid, name, Path(f"/proc/{pid}/{name}").read_bytes().decode("utf-8", "replace"))
        seen += 1
assert seen > 2, "itself, the JVM, and Python workers"
print("everything was shown")
refused({"sasl.password": options["wrong"], "default.api.timeout.ms": 10_000})
refused({"sasl.pasword": options["wrong"]})
refused({"consumer.sasl.passwort": options["wrong"]})
refused({"ssl.keystore.password": options["wrong"]})
refused({"ssl.key.pem": options["wrong"], "ssl.certificate.pem": options["wrong"]})

producer = Producer({"bootstrap.servers": options["clear"]})
producer.produce(options["source"], key="a", value=json.dumps({"n": 0}))
producer.flush()
try:
    streams.awaitTermination(240)
except SparkRelayError as error:
    traceback.print_exception(error, file=sys.stdout)
    print("it failed")
streams.stop(60)
spark.stop()
