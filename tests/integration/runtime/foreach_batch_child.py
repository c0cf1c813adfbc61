"""An instance on a cluster of two executors that gives its rows to a function; answers with JSON what that got."""

import json
import sys

from tests.integration.runtime.cluster_child import wait_for
from tests.short_spark import SHORT_LIVED

from sparkrelay import Json, KafkaStreams, StreamsBuilder, String, spark_session


def main():
    settings = json.loads(sys.argv[1])
    spark = spark_session("batches", **{"spark.master": "local-cluster[2,1,1024]", **SHORT_LIVED})
    spark.sparkContext.setLogLevel("OFF")
    calls = []

    def note(df, batch_id):
        df.cache()
        users = df.groupBy("user").count().count()
        calls.append([batch_id.task, [row.id for row in df.collect()], users])
        df.unpersist()

    builder = StreamsBuilder()
    builder.stream(settings["topic"], key=String("user"), value=Json("id long")).foreachBatch(note)
    streams = KafkaStreams(builder.build(), settings["config"], spark=spark, quiet=True)
    streams.start()
    wait_for(lambda: streams.exception() or sum(len(ids) for _, ids, _ in calls) >= settings["rows"], bool, 240)
    failed = streams.exception()
    processes = len({thread.process_id for thread in streams.metadata_for_local_threads()})
    streams.stop()
    spark.stop()
    answer = {"calls": calls, "failed": failed and str(failed), "processes": processes}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
