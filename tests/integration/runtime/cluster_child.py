"""A session on a real cluster of two executors, as a process of its own: the test run's session is a local one.

Takes its settings as JSON on the command line; answers with one JSON object on standard output.
"""

import dataclasses
import json
import logging
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path

from pyspark.sql import functions as F
from tests.integration.runtime.cluster_steps import claim_and_wait, hold_core, report_where
from tests.ports import own_port
from tests.short_spark import SHORT_LIVED
from tests.topics import read_to_end, write

from sparkrelay import Json, KafkaStreams, StreamsBuilder, String, spark_session
from sparkrelay.errors import StreamsException
from sparkrelay.runtime.slot.executor_slot import ExecutorSlot
from sparkrelay.runtime.spark.executor_target import ExecutorLost, ExecutorTarget
from sparkrelay.runtime.spark.executors import Executor, Executors
from sparkrelay.runtime.spark.jobs import BATCH_POOL, REPORT_SCHEMA, JobFailed, run_job
from sparkrelay.runtime.worker.slot_keeper import ClaimCommand
from sparkrelay.state.home.file_lock import FileLock
from sparkrelay.types import TaskId

#: Two subtopologies of four partitions each.
TASKS = 8


def main():
    settings = json.loads(sys.argv[1])
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = spark_session(
        "cluster",
        **{
            "spark.master": "local-cluster[2,1,1024]",
            "spark.decommission.enabled": "true",
            "spark.executorEnv.SPARKRELAY_CLIENT_TAG_ZONE": "east",
            **SHORT_LIVED,
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    try:
        answer = look_around(spark, settings)
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(answer) + "\n")


def look_around(spark, settings):
    executors = Executors(spark)
    there = wait_for(lambda: executors.describe(executors.ids()), lambda found: len(found) == 2)
    answer = {"separate": executors.separate, "executors": [dataclasses.asdict(executor) for executor in there]}
    targets = [ExecutorTarget.on(spark, executor, executors) for executor in there]
    answer["placed"] = [where(target) for target in targets]
    answer["union"] = where_all(targets[0], [target.source(3) for target in (targets[0], targets[0])])
    answer["slots"] = claim_slots(targets, settings["state_dir"])
    answer["cancelled"] = cancel_claim(targets[0], settings["state_dir"])
    answer["closed"] = close_living(spark, executors, there[0])
    answer["misplaced"] = misplace(spark, executors, there, settings["state_dir"])
    if "pipeline" in settings:
        answer["pipeline"] = run_pipeline(spark, settings["pipeline"])
    answer["lost"] = lose(targets[0], Path(settings["state_dir"]) / "lost")
    if "pipeline" in settings:
        answer["dropped"] = drop_executors(spark, settings["pipeline"])
        answer["stopped"] = stop_below(spark, settings["pipeline"])
    return answer


def wait_for(look, enough, seconds=90):
    deadline = time.monotonic() + seconds
    while not enough(found := look()):
        assert time.monotonic() < deadline, f"{found} after {seconds} s"
        time.sleep(0.05)
    return found


def where(target):
    return where_all(target, [target.source()])


def where_all(target, sources):
    """Return which executor and which Spark partition ran each part of a union, as the workers say."""
    frame = sources[0]
    for source in sources[1:]:
        frame = frame.union(source)
    frame = frame.mapInArrow(report_where, REPORT_SCHEMA)
    return run_job(target, frame, None, pool=BATCH_POOL, group=target.job_group("where"), description="where")


def claim_slots(targets, state_dir):
    """Claim a slot on each executor and one more, give one back, and claim again."""
    slots = [ExecutorSlot.claim(target, state_dir, "app") for target in [*targets, targets[0]]]
    (slots[1].path / "0_3").mkdir()
    (slots[1].path / "0_3" / "data").write_text("state")
    slots[1].release()
    again = ExecutorSlot.claim(targets[0], state_dir, "app")
    found = {
        "numbers": [int(slot.path.name) for slot in slots],
        "host": dataclasses.asdict(slots[0].host_metadata),
        "identities": [str(slot.process_id) for slot in slots],
        "again": [int(again.path.name), str(again.process_id), [str(task) for task in again.task_ids()]],
    }
    # Two copies are old, one of them is needed.
    for name in ("0_3", "0_4"):
        (again.path / name).mkdir(exist_ok=True)
        for entry in (*(again.path / name).iterdir(), again.path / name):
            os.utime(entry, (1000.0, 1000.0))
    gone = again.remove_obsolete(frozenset({TaskId(0, 3)}), 2000.0, 2000.0)
    found["cleaned"] = [path.name for path in gone]
    found["held"] = [task.partition for task in (TaskId(0, 3), TaskId(0, 4)) if again.holds(task)]
    for slot in (slots[0], slots[2], again):
        slot.release()
    return found


def cancel_claim(target, state_dir):
    """Cancel a claim between its worker's having the slot and its answer; say what became of the job and the slot."""
    lock = FileLock(Path(state_dir) / "cancelled" / "0" / ".lock")
    frame = target.source(1).mapInArrow(claim_and_wait, REPORT_SCHEMA)
    command, group = ClaimCommand(state_dir, "cancelled"), target.job_group("cancelled")
    failed = []

    def claim():
        try:
            run_job(target, frame, command, pool=BATCH_POOL, group=group, description="cancelled")
        except JobFailed as error:
            failed.append(str(error))

    claiming = threading.Thread(target=claim)
    claiming.start()
    wait_for(lock.is_held_elsewhere, bool)
    target.cancel(group)
    claiming.join()
    # The job's end is reported before the executor knows of it, and until then Spark would read the answer.
    scheduler = frame.sparkSession.sparkContext._jsc.sc().taskScheduler()
    wait_for(lambda: scheduler.runningTasksByExecutors().apply(target.executor.id) == 0, bool)
    (Path(state_dir) / "answer").touch()
    wait_for(lambda: not lock.is_held_elsewhere(), bool)
    return failed


def close_living(spark, executors, executor):
    """Close a place of an executor that lives, as a stop may; run a job at the next place there."""
    target = ExecutorTarget.on(spark, executor, executors)
    where(target)
    target.lose()
    return where(ExecutorTarget.on(spark, executor, executors))


def misplace(spark, executors, there, state_dir):
    """Run a job of the first executor on the second, as Spark does when the first is gone or busy for too long."""

    class Elsewhere(Executor):
        @property
        def location(self):
            return there[1].location

    target = ExecutorTarget.on(spark, Elsewhere(*dataclasses.astuple(there[0])), executors)
    try:
        ExecutorSlot.claim(target, state_dir, "misplaced")
    except JobFailed as error:
        return {"error": str(error), "touched": (Path(state_dir) / "misplaced").exists()}
    return {"error": None}


def run_pipeline(spark, settings):
    write_cities(settings)
    server = f"127.0.0.1:{own_port()}"
    with make_pipeline(spark, settings, **{"application.server": server}) as streams:
        streams.start()
        tasks = wait_shared(streams, 2)
        logged = executors_log()
        write_orders(settings)
        wait_counted(settings, settings["rows"])
        logged = executors_log() - logged
        queried = query(streams, server)
        slots = sorted(slot.name for slot in state_of(settings).iterdir())
        resized = resize(spark, streams)
        refused = [refusal(streams.add_stream_thread), refusal(streams.remove_stream_thread)]
        return {
            "refused": refused,
            "tasks": tasks,
            "slots": slots,
            "logged": logged,
            "queried": queried,
            **resized,
            "decommissioned": decommission(spark, streams, settings),
        }


def refusal(change):
    """Return the error of a change that is refused."""
    try:
        return f"it answers {change()}"
    except StreamsException as error:
        return str(error)


def query(streams, server):
    """Return what is asked of stores that are on the executors."""

    def asked(path):
        with urllib.request.urlopen(f"http://{server}/stores/{path}", timeout=60) as answer:
            return [json.loads(line) for line in answer]

    cities, shops = sorted(streams.store_names, key=lambda name: "by-shop" in name)
    wait_for(lambda: len(streams.range(shops)), lambda count: count == 13)
    return {
        "shop": streams.query(shops, "shop3").asDict(),
        "none": streams.query(shops, "shop99"),
        "city": streams.query(cities, "shop3").asDict(),
        "count": streams.store(shops).agg(F.sum("n")).first()[0],
        "uncommitted": streams.query(shops, "shop3", isolation="read_uncommitted").n,
        "everywhere": streams.store(shops, everywhere=True).count(),
        "asked": asked(f"{shops}/shop3"),
        "pages": sum(len(asked(f"{shops}?partition={partition}")) for partition in range(4)),
        "weighed": sorted(name for (_, name), size in streams.details().state_bytes.items() if size),
        "lags": sorted(streams.all_local_store_partition_lags()[shops]),
    }


def executors_log():
    """Return how many lines of INFO all executors have logged."""
    files = Path(os.environ["SPARK_HOME"]).glob("work/*/*/stderr")
    return sum(file.read_text(errors="replace").count(" INFO ") for file in files)


def make_pipeline(spark, settings, **config):
    builder = StreamsBuilder()
    orders = builder.stream(settings["source"], key=String("user"), value=Json("shop string, amount long"))
    cities = builder.global_table(settings["cities"], key=String("shop"), value=Json("city string"))
    totals = F.count("*").alias("n"), F.sum("amount").alias("total"), F.min("city").alias("city")
    orders.join(cities, "shop", "left").groupBy("shop").agg(*totals).to(settings["sink"])
    return KafkaStreams(builder.build(), settings["config"] | config, spark=spark)


def write_cities(settings):
    rows = [(f"shop{number}", {"city": f"city{number}"}) for number in range(13)]
    write(settings["config"]["bootstrap.servers"], settings["cities"], rows)


def write_orders(settings):
    values = ({"shop": f"shop{number % 13}", "amount": number} for number in range(settings["rows"]))
    rows = [{"key": f"user{n % 50}", "value": value, "partition": n % 4} for n, value in enumerate(values)]
    rows += [{"key": "user0", "value": "no JSON", "partition": partition} for partition in range(4)]
    write(settings["config"]["bootstrap.servers"], settings["source"], rows)


def wait_counted(settings, rows):
    """Wait until the sink says that so many records were counted."""

    def counted():
        found = read_to_end(settings["config"]["bootstrap.servers"], settings["sink"])
        return sum({message.key(): json.loads(message.value())["n"] for message in found}.values())

    wait_for(counted, lambda count: count >= rows, 180)


def resize(spark, streams):
    """Release an executor and ask for another, by the calls that dynamic allocation makes; return who has what then."""
    context, executors = spark.sparkContext._jsc.sc(), Executors(spark)
    before = executors.ids()
    assert context.killExecutor(max(before))
    fewer = wait_shared(streams, 1)
    no_preference = getattr(getattr(spark._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
    assert context.requestTotalExecutors(2, 0, no_preference)
    more = wait_shared(streams, 2)
    return {"fewer": fewer, "more": more, "new": sorted(executors.ids() - before)}


def decommission(spark, streams, settings):
    """Decommission an executor that stays a while, for a task of another query; say who has what, and the end of it."""
    context, executors = spark.sparkContext._jsc.sc(), Executors(spark)
    (executor,) = executors.describe({max(executors.ids())})
    folder = Path(settings["folder"])
    query, others = hold(ExecutorTarget.on(spark, executor, executors), folder)
    none = getattr(getattr(spark._jvm.scala, "None$"), "MODULE$")
    why = spark._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("the node is drained", none)
    assert context.schedulerBackend().decommissionExecutor(executor.id, why, True, False)
    write_orders(settings)
    left = wait_shared(streams, 1)
    wait_counted(settings, 2 * settings["rows"])
    there = context.getExecutorIds().contains(executor.id)
    (folder / "let go").touch()
    query.join()
    wait_for(lambda: context.getExecutorIds().contains(executor.id), lambda found: not found)
    return {"left": left, "there": there, "others": others}


def hold(target, folder):
    """Have a job keep a core of a place until there is a file ``let go``; return its thread, and its answer to come."""
    frame, answers = target.source().mapInArrow(hold_core, REPORT_SCHEMA), []
    command, group = ClaimCommand(str(folder), "held"), target.job_group("other")

    def run():
        try:
            answers.append(run_job(target, frame, command, pool=BATCH_POOL, group=group, description="another query"))
        except ExecutorLost as error:
            answers.append(str(error))

    query = threading.Thread(target=run)
    query.start()
    wait_for((folder / "held").exists, bool)
    return query, answers


def drop_executors(spark, settings):
    """Take all executors away for good, as a master that has dropped the application; say what an instance does."""
    name = settings["config"]["application.id"] + "-dropped"
    config = {"application.id": name, "auto.offset.reset": "latest", "executor.wait.timeout.ms": 20_000}
    context, executors, seen = spark.sparkContext._jsc.sc(), Executors(spark), []
    # Its JVM and its Python are up before the instance waits for a process there: that would count, too.
    (executor,) = wait_for(lambda: executors.describe(executors.ids()), lambda found: len(found) == 1)
    where(ExecutorTarget.on(spark, executor, executors))

    def look():
        now = streams.snapshot()
        answer = [now.state, now.alive, now.ready, now.trouble]
        if answer not in seen:
            seen.append(answer)
        return now.state

    with make_pipeline(spark, settings, **config) as streams:
        streams.start()
        wait_for(look, lambda state: state == "RUNNING", 180)
        assert context.killExecutor(executor.id)
        wait_for(look, lambda state: state == "ERROR", 180)
        failure = str(streams.exception())
    no_preference = getattr(getattr(spark._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
    assert context.requestTotalExecutors(1, 0, no_preference)
    return {"seen": seen, "failure": failure}


def stop_below(spark, settings):
    """Stop the session as Spark does when the cluster manager ends the application; say what an idle instance does."""
    name = settings["config"]["application.id"] + "-stopped"
    with make_pipeline(spark, settings, **{"application.id": name, "auto.offset.reset": "latest"}) as streams:
        streams.start()
        wait_for(lambda: streams.state, lambda state: state == "RUNNING", 180)
        spark.sparkContext._jsc.sc().stop()
        wait_for(lambda: streams.state, lambda state: state == "ERROR")
        return str(streams.exception())


def wait_shared(streams, processes):
    """Wait until so many processes run all tasks, each some; return the tasks of each."""

    def look():
        return {t.process_id: [a.task_id for a in t.active_tasks] for t in streams.metadata_for_local_threads()}

    def enough(found):
        shared = len(found) == processes and all(found.values()) and sum(map(len, found.values())) == TASKS
        return shared and streams.state == "RUNNING"

    return wait_for(look, enough, 180)


def state_of(settings):
    return Path(settings["config"]["state.dir"]) / settings["config"]["application.id"]


def lose(target, folder):
    """Kill an executor's JVM under a job; say which error the job gets, and what the next one there."""
    folder.mkdir()
    ((_, _, jvm),) = where(target)
    # Between two jobs Spark might know before the next one, which then runs elsewhere.
    query, errors = hold(target, folder)
    os.kill(jvm, signal.SIGKILL)
    query.join()
    (folder / "let go").touch()
    try:
        where(target)
    except ExecutorLost as error:
        errors.append(str(error))
    return errors


if __name__ == "__main__":
    main()
