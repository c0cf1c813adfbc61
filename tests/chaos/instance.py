"""One instance of the pipeline that the kill tests kill, as a process of its own.

Takes its settings as JSON on the command line, answers on standard output, one line each:

    (made)          ready
    start           started, or failed <error>
    tasks           {"active": [...], "standby": [...], "state": "RUNNING"}
    processes       {"<process id>": {"active": [...], "standby": [...]}, ...}
    status          RUNNING, or RUNNING: <what hinders it>
    exception       the error that the instance has ended with, or None
    wait            waits, as soon as a signal would end the wait, and ended <state>, once one has
    stop            stopped <state>

Points between the driver's own requests to the broker are added here, from outside of the product's code.
"""

import itertools
import json
import logging
import signal
import sys
import threading
import time

from pyspark import cloudpickle
from pyspark.sql import Window, functions as F

from sparkrelay import Json, KafkaStreams, StreamsBuilder, String, spark_session
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.runtime.batch import residency
from sparkrelay.runtime.contract import fault_points


def pipeline(topics):
    """Three stateful legs, one of them behind a repartition topic, and two stateless ones that share a topic.

    One of the stateful legs has windows, of which only the final rows go on, and late rows elsewhere. And a table,
    which orders look into, which is written as it is and filtered, and which is joined with another; and a global one.
    And two tables that are joined by a foreign key.
    And a join of two streams, of which some rows find nothing, and final sessions of one of them. And the first rows of
    each key, and the best ones of each window.
    """
    builder = StreamsBuilder()
    value = Json("id long, shop string, amount long, at timestamp")
    orders = builder.stream(topics["orders"], key=String("user"), value=value)
    totals = F.count("*").alias("n"), F.sum("amount").alias("total")
    users = orders.groupBy("user").agg(*totals)
    users.to(topics["users"])
    # A step after the aggregate keeps state and publish in two Python stages.
    orders.groupBy("shop").agg(*totals).to_stream().where("n > 0").to(topics["shops"])
    timed = orders.withWatermark("at", "1 second").groupBy(F.window("at", "5 seconds"), "user")
    counts = timed.agg(F.count("*").alias("n"), name="windows", late_to=topics["late"])
    counts.outputMode("append").to(topics["windows"], value=Json())
    people = builder.table(topics["people"], key=String("user"), value=Json("version long"), name="people")
    people.to(topics["copies"])
    people.where("version % 2 = 0").to(topics["evens"])
    users.join(people, "user", "left").to(topics["profiles"])
    shops = orders.select("shop", "id", "user").repartition("shop", name="by-shop").to_table(name="shops-last")
    # By the keys' hashes, as the join's own topics: those of users are written elsewhere.
    last = orders.select("user", F.col("id").alias("last")).repartition("user", name="by-user")
    shops.join(last.to_table(name="users-last"), "user", "left").to(topics["customers"])
    newest = F.row_number().over(Window.partitionBy("user").orderBy(F.desc("id")))
    orders.select("user", "id").withColumn("place", newest).where("place <= 2").to(topics["newest"], value=Json())
    orders.join(people, "user", "left").select("id", "version").to(topics["known"], value=Json())
    places = builder.global_table(topics["places"], key=String("shop"), value=Json("city string"), name="places")
    orders.join(places, "shop", "left").select("id", "city").to(topics["placed"], value=Json())
    # Late orders are for another output; those of the join have their payments at their own time.
    ordered = orders.where("at >= timestamp'2026-01-01 00:00:00Z'").withWatermark("at", "1 second")
    level = ordered.selectExpr("id", "user", "at", "pmod(amount, 3) AS level").withColumn(
        "window", F.window("at", "5 seconds")
    )
    highest = F.rank().over(Window.partitionBy("user", "window").orderBy(F.desc("level")))
    best = level.withColumn("rank", highest).where("rank <= 1").outputMode("append")
    best.select("user", "window", "id").to(topics["best"], value=Json())
    paid = Json("order long, paid timestamp")
    payments = builder.stream(topics["payments"], key=String("user"), value=paid).withWatermark("paid", "1 second")
    joined = ordered.join(payments, "user", "left", within="0 seconds", name="paid")
    joined.select("id", "order").to(topics["paid"], value=Json())
    sessions = payments.groupBy("user", F.session_window("paid", "2 seconds").alias("visit"))
    visits = sessions.agg(F.count("*").alias("n"), F.sum("order").alias("total"), name="visits")
    visits.outputMode("append").to(topics["visits"], value=Json())
    orders.where("amount % 7 = 0").select("id", F.lit("seven").alias("why")).to(topics["marks"], value=Json())
    orders.where("amount % 11 = 0").select("id", F.lit("eleven").alias("why")).to(topics["marks"], value=Json())
    return builder.build()


def watch_transactions():
    """Let the driver die right before and right after it sends EndTxn, which is after its offsets were answered."""
    send = KafkaClient.send

    def watched(self, request, **kwargs):
        ends = type(request).__name__.startswith("EndTxn") and request.committed
        if ends:
            fault_points.reach("driver-before-end-txn")
        response = send(self, request, **kwargs)
        if ends:
            fault_points.reach("driver-after-end-txn")
        return response

    KafkaClient.send = watched


def choose_ways(ways):
    """Have micro-batches pass through a resident job, have jobs of their own, or change between both all the time."""
    match ways:
        case "resident":
            residency._IN_A_ROW, residency._SMALL = 1, residency._BACKLOG
        case "bulk":
            residency._SMALL = -1
        case "in turn":
            numbers = itertools.count()
            residency.Choice.resident = lambda choice, records, now, *, open_: next(numbers) // 3 % 2 == 0
        case _:
            assert ways == "as it comes"


def run(own_pipeline):
    """Run a script of its own as an instance of another pipeline."""
    # Python workers cannot import them.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    main(own_pipeline)


def main(make=pipeline):
    settings = json.loads(sys.argv[1])
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = spark_session("chaos", **settings["spark"])
    spark.sparkContext.setLogLevel("ERROR")
    watch_transactions()
    choose_ways(settings["ways"])
    streams = KafkaStreams(make(settings["topics"]), settings["config"], spark=spark)
    # Python workers are up before the instance joins, so that a restart takes as little as it can.
    start_workers(spark)
    say("ready")
    for line in sys.stdin:
        match line.strip():
            case "start":
                try:
                    streams.start()
                except Exception as error:
                    logging.getLogger("chaos").exception("start failed")
                    say(f"failed {error}")
                else:
                    say("started")
            case "tasks":
                threads = streams.metadata_for_local_threads()
                parts = [tasks_of(thread) for thread in threads]
                both = {kind: [task for part in parts for task in part[kind]] for kind in ("active", "standby")}
                say(json.dumps({**both, "state": streams.state}))
            case "processes":
                say(
                    json.dumps({thread.process_id: tasks_of(thread) for thread in streams.metadata_for_local_threads()})
                )
            case "status":
                say(streams.status.replace("\n", " "))
            case "exception":
                say(str(streams.exception()).replace("\n", " "))
            case "wait":
                threading.Thread(target=say_that_it_waits, args=(signal.getsignal(signal.SIGTERM),)).start()
                streams.awaitTermination()
                say(f"ended {streams.state}")
                break
            case "stop":
                streams.stop()
                say(f"stopped {streams.state}")
                break
    spark.stop()


def say_that_it_waits(before):
    """Say so once SIGTERM is handled in another way than before: a signal that came sooner would end the program."""
    while signal.getsignal(signal.SIGTERM) is before:
        time.sleep(0.01)
    say("waits")


def tasks_of(thread):
    """Return the active tasks in service, and the standbys that have caught up."""
    return {
        "active": [task.task_id for task in thread.active_tasks if task.state == "running"],
        "standby": [task.task_id for task in thread.standby_tasks if task.lag == 0],
    }


def start_workers(spark, tries=3):
    """Run a job. Spark may hand out an idle Python worker whose channel is closed (ClosedChannelException): once more.

    An instance runs its micro-batches again for it; nobody would this job.
    """
    for left in reversed(range(tries)):
        try:
            spark.range(0, 4, 1, 4).mapInArrow(pass_on, "id long").mapInArrow(pass_on, "id long").collect()
        except Exception:
            logging.getLogger("chaos").exception("the Python workers did not start")
            if not left:
                raise
        else:
            return


def pass_on(batches):
    yield from batches


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
