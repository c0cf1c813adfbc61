"""What an operator sees of a real pipeline: the endpoint, metadata, progress, and jobs in Spark's UI."""

import json
import re
import socket
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import functions as F
from tests.ports import own_port
from tests.waiting import LONG, remove_folder

from sparkrelay import Json, StreamsBuilder, String, TopicPartition
from sparkrelay.errors import ConfigException

from .conftest import wait_for_every_job

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS = 2


def counting(source, sink):
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("user"), value=Json("shop string"))
    stream.groupBy("user", name="users").count().to(sink)
    return builder


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", PARTITIONS), make_topic("counts", PARTITIONS)


@pytest.fixture
def write(produce, topics):
    """`write(count)` writes orders and returns the table that all written so far make."""
    counts = {}

    def some(count):
        users = [f"u{number % 7}" for number in range(count)]
        produce(topics[0], [(user, {"shop": "s"}) for user in users])
        for user in users:
            counts[user.encode()] = {"user": user, "count": counts.get(user.encode(), {"count": 0})["count"] + 1}
        return counts

    return some


@pytest.fixture
def port():
    """A port that no connection of Spark's or a client's takes before the endpoint does."""
    return own_port()


def asked(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LONG) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scraped(port):
    status, text = asked(port, "/metrics")
    assert status == 200
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def only(samples, name, *labels):
    """Return the samples of a name that have these labels: other labels' values -> number."""
    return {
        tuple(value for label, value in key[1:] if (label, value) not in labels): number
        for key, number in samples.items()
        if key[0] == name and set(labels) <= set(key[1:])
    }


def endpoint_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sparkrelay-metrics")]


def test_the_endpoint_counts_what_was_processed(
    instance, topics, write, wait_for_table, wait_until, consumed, port, application_id
):
    streams = instance(counting(*topics), {"metrics.port": port, "max.batch.records": 20})
    with streams:
        streams.start()
        wait_for_table(topics[1], write(150), streams)
        wait_until(lambda: streams.state == "RUNNING", "the instance does not run")
        wait_for_table(topics[1], write(50), streams)
        # The table is there a moment before the batch that made it is counted.
        wait_until(
            lambda: scraped(port).get(("sparkrelay_records_total", ("topic", topics[0]))) == 200, "a batch is missing"
        )
        samples = scraped(port)
        assert asked(port, "/health") == (200, "RUNNING\n")
        process = streams.metadata_for_local_threads()[0].process_id
        # A batch is reported a moment after it is counted.
        wait_until(lambda: sum(report["numInputRows"] for report in streams.recentProgress) == 200, "one is missing")
        batches = [report for report in streams.recentProgress if report["numInputRows"]]
    assert samples["sparkrelay_rows_written_total",] == len(consumed(topics[1]))
    assert samples["sparkrelay_batches_total",] == len(batches) >= 200 / 40
    assert samples["sparkrelay_batch_seconds_count",] == len(batches)
    assert samples["sparkrelay_commit_seconds_count",] == len(batches)
    assert 0 < samples["sparkrelay_commit_seconds_sum",] < samples["sparkrelay_batch_seconds_sum",]
    assert only(samples, "sparkrelay_state") | {("RUNNING",): 1.0} == only(samples, "sparkrelay_state")
    assert only(samples, "sparkrelay_task_lag", ("topic", topics[0]), ("process", process)) == {
        ("0", "0_0"): 0,
        ("1", "0_1"): 0,
    }
    assert only(samples, "sparkrelay_tasks")["running",] == PARTITIONS
    assert samples["sparkrelay_instance_info", ("application_id", application_id)] == 1
    assert set(only(samples, "sparkrelay_errors_total").values()) == {0}
    # Stopped: nobody answers, nothing is left.
    with pytest.raises(urllib.error.URLError):
        asked(port, "/health")
    wait_until(lambda: not endpoint_threads(), "a thread of the endpoint is left")


def test_late_rows_are_counted_by_store(instance, make_topic, produce, wait_until, port):
    clicks, counts = make_topic("clicks", 1), make_topic("counts", 1)
    builder = StreamsBuilder()
    timed = builder.stream(clicks, key=String("user"), value=Json("at timestamp")).withWatermark("at", "0 seconds")
    grouped = timed.groupBy("user", F.window("at", "1 minute"))
    grouped.agg(F.count("*").alias("clicks"), name="minutes").to(counts, value=Json())
    late = ("sparkrelay_late_rows_total", ("store", "minutes"))
    with instance(builder, {"metrics.port": port}) as streams:
        streams.start()
        produce(clicks, [("ada", {"at": "2026-01-01T10:05:00Z"})])
        wait_until(lambda: scraped(port).get(late) == 0, "the store has no counter")
        produce(clicks, [("ada", {"at": f"2026-01-01T10:0{minute}:00Z"}) for minute in (0, 1, 6)])
        wait_until(lambda: scraped(port)[late] == 2, lambda: f"{scraped(port)[late]} late rows")


@pytest.mark.long
def test_a_port_in_use_is_an_error_at_start_and_the_instance_can_start_later(instance, topics, port, wait_until):
    streams = instance(counting(*topics), {"metrics.port": port})
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigException, match="metrics.port") as caught:
        streams.start()
    assert f"has the value {port}" in str(caught.value)
    assert streams.state == "CREATED"
    streams.start()
    assert asked(port, "/health")[0] == 200
    wait_until(lambda: streams.state == "RUNNING", "the instance does not run")


@pytest.mark.long
def test_a_failed_instance_says_why_until_it_is_stopped(instance, topics, produce, port, wait_until):
    streams = instance(counting(*topics), {"metrics.port": port})
    streams.start()
    produce(topics[0], [("u", "this is no JSON")])
    wait_until(lambda: streams.state == "ERROR", "the record is taken")
    status, text = asked(port, "/health")
    assert status == 503
    assert text.startswith("ERROR: ")
    assert str(streams.exception()) in text
    view = json.loads(asked(port, "/api/group")[1])["instances"][0]["view"]
    assert (view["state"], view["alive"]) == ("ERROR", False)
    assert str(streams.exception()) in view["trouble"]
    assert scraped(port)["sparkrelay_errors_total", ("where", "thread")] == 1
    assert streams.stop(LONG)
    wait_until(lambda: not endpoint_threads(), "a thread of the endpoint is left")


def jobs_of(spark, thread):
    """Return the jobs that carry a thread's name as a tag, oldest first: (description without it, all tags)."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = []
    for job in (jobs.apply(number) for number in range(jobs.size())):
        tags = set(job.jobTags().mkString(",").split(","))
        if thread in tags:
            assert job.description().get().startswith(f"{thread}: ")
            found.append((job.jobId(), job.description().get().removeprefix(f"{thread}: "), tags))
    return [what for _, *what in sorted(found, key=lambda job: job[0])]


def test_jobs_say_what_they_are_for(instance, topics, write, wait_for_table, wait_until, spark, tmp_path):
    first = instance(counting(*topics), {"max.batch.records": 50})
    with first:
        first.start()
        wait_for_table(topics[1], write(100), first)
        wait_until(lambda: first.state == "RUNNING", "the instance does not run")
    (thread,) = (one.thread_name for one in first.metadata_for_local_threads())
    wait_for_every_job(spark)
    batches = [(text, tags) for text, tags in jobs_of(spark, thread) if text.startswith("batch ")]
    tasks, _, reason = batches[0][0].partition(", in a job of its own: ")
    assert tasks in {"batch 1 of 2 tasks, 0_0..0_1", "batch 1 of 0_0", "batch 1 of 0_1"}
    assert reason == "the first small ones behind a backlog"
    assert all({"sparkrelay", "sparkrelay-batches"} <= tags for _, tags in batches)
    remove_folder(tmp_path / "state")
    second = instance(counting(*topics), {"num.standby.replicas": 1})
    second.start()
    wait_until(lambda: second.state == "RUNNING", "the instance does not run")
    (thread,) = (one.thread_name for one in second.metadata_for_local_threads())
    wait_for_every_job(spark)
    restoring = [(text, tags) for text, tags in jobs_of(spark, thread) if text.startswith("restoring ")]
    assert restoring[0][0] == "restoring 2 tasks, 0_0..0_1"
    assert {"sparkrelay", "sparkrelay-restore"} <= restoring[0][1]
    third = instance(counting(*topics), {"num.standby.replicas": 1})
    third.start()
    wait_until(lambda: third.metadata_for_local_threads()[0].standby_tasks, "there is no standby")
    (thread,) = (one.thread_name for one in third.metadata_for_local_threads())
    wait_until(lambda: any(text.startswith("standby of ") for text, _ in jobs_of(spark, thread)), "no job says so")


@pytest.mark.long
def test_each_member_logs_the_rebalance(instance, topics, write, wait_for_table, wait_until, caplog):
    caplog.set_level("INFO", logger="sparkrelay.runtime.group.assignment_log")

    def logged(streams):
        (thread,) = streams.metadata_for_local_threads()
        start = f"{thread.thread_name}: "
        messages = [record.getMessage() for record in caplog.records]
        return thread.process_id[:8], [m.removeprefix(start) for m in messages if m.startswith(start)]

    first = instance(counting(*topics), {"metrics.port": 0})
    first.start()
    wait_for_table(topics[1], write(60), first)
    wait_until(lambda: first.state == "RUNNING", "the first does not run")
    process, lines = logged(first)
    assert lines[0].endswith(
        f", 1 process ({process}), because the group begins: gains 0_0, 0_1; 2 active, 0 standby now"
    )
    wait_until(lambda: len(logged(first)[1]) == 2, "nobody says that the tasks are in service")
    assert re.fullmatch(
        r"generation 1: every task in service after [\d.]+ s: [\d.]+ s until the assignment, [\d.]+ s to open 0_0, 0_1",
        logged(first)[1][1],
    )
    second = instance(counting(*topics))
    second.start()
    wait_until(lambda: sorted(map(len, map(active_tasks, (first, second)))) == [1, 1], "they do not share")
    wait_until(lambda: first.state == second.state == "RUNNING", "the two do not run")
    newcomer = logged(second)[0]
    for streams in (first, second):
        assert any(f"{newcomer} joined" in line for line in logged(streams)[1]), logged(streams)
    assert any("gives up 0_" in line for line in logged(first)[1])
    assert any("gains 0_" in line or "promotes 0_" in line for line in logged(second)[1])
    # The rebalance is over for the thread a moment after its tasks are as they were assigned.
    wait_until(lambda: first.snapshot().totals.rebalances.count >= 2, "the second rebalance is not counted")
    assert second.stop(LONG)
    wait_until(lambda: any(f"{newcomer} left" in line for line in logged(first)[1]), "nobody logs that it left")
    wait_until(lambda: len(active_tasks(first)) == 2, "the tasks do not come back")


def active_tasks(streams):
    return [task for thread in streams.metadata_for_local_threads() for task in thread.active_tasks]


def test_threads_and_tasks_are_described(instance, topics, write, wait_for_table, wait_until, kafka_admin):
    began = datetime.now(UTC)
    first = instance(counting(*topics), {"num.standby.replicas": 1})
    assert first.metadata_for_local_threads() == ()
    first.start()
    wait_for_table(topics[1], write(100), first)
    second = instance(counting(*topics), {"num.standby.replicas": 1})
    second.start()

    def shared():
        found = [streams.metadata_for_local_threads()[0] for streams in (first, second)]
        ready = all(task.changelog_lag == 0 for thread in found for task in thread.standby_tasks)
        running = [task.state for thread in found for task in thread.active_tasks] == ["running"] * PARTITIONS
        drained = all(task.lag == 0 for thread in found for task in thread.active_tasks)
        spread = all(len(thread.active_tasks) == len(thread.standby_tasks) == 1 for thread in found)
        return ready and running and drained and spread

    wait_until(shared, "the two do not share the work")
    wait_until(lambda: first.state == second.state == "RUNNING", "the two do not run")
    threads = [streams.metadata_for_local_threads()[0] for streams in (first, second)]
    committed = {}
    for thread in threads:
        assert thread.thread_state == "RUNNING"
        assert thread.thread_name == thread.consumer_client_id == thread.admin_client_id
        assert thread.member_id.startswith(thread.consumer_client_id)
        assert thread.restore_consumer_client_id == f"{thread.thread_name}-restore"
        for task in thread.active_tasks:
            assert task.committed_offsets == task.end_offsets
            assert task.replay_began is None
            committed |= task.committed_offsets
        for task in thread.standby_tasks:
            assert task.changelog_offsets == task.changelog_end_offsets
            assert task.changelog_offsets
            assert began < task.replay_began < datetime.now(UTC)
    assert set(committed) == {TopicPartition(topics[0], n) for n in range(PARTITIONS)}
    assert sum(committed.values()) == 100
    assert len({thread.process_id for thread in threads}) == 2
    wait_for_table(topics[1], write(10), first, second)

    def reports():
        return [report["sparkrelay"] for streams in (first, second) for report in streams.recentProgress]

    # The table is there a moment before the batch that made it is reported.
    standbys = {task.task_id for thread in threads for task in thread.standby_tasks}
    wait_until(
        lambda: {task for report in reports() for task in report["standby"]} == standbys, "they are not reported"
    )
    logged = reports()
    assert json.loads(json.dumps(logged)) == logged
    for streams in (first, second):
        assert streams.stop(LONG)
        assert [thread.thread_state for thread in streams.metadata_for_local_threads()] == ["DEAD"]
