"""On a real cluster of two executors: jobs are placed, misplaced ones are refused, and each executor is a process."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

#: What happens on the cluster takes a minute, and as many times longer as others want the cores: a bound is for what
#: hangs, and each wait has one of its own.
BOUND_S = 1500

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(BOUND_S + 60)]

ROWS = 4000


@pytest.fixture(scope="module")
def topics(module_topic):
    widths = {"source": 4, "sink": 4, "cities": 3, "letters": 2}
    return {name: module_topic(name, width) for name, width in widths.items()}


@pytest.fixture(scope="module")
def cluster(kafka, topics, tmp_path_factory, spark_home):
    """What happened on the cluster."""
    folder = tmp_path_factory.mktemp("cluster")
    config = {
        "application.id": f"cluster-{os.getpid()}",
        "bootstrap.servers": kafka.bootstrap_servers,
        "state.dir": str(folder / "state"),
        "poll.ms": 20,
        "deserialization.exception.handler": "log-and-continue",
        "errors.dead.letter.queue.topic.name": topics["letters"],
    }
    pipeline = {**topics, "config": config, "rows": ROWS, "folder": str(folder)}
    settings = {"state_dir": str(folder / "slots"), "pipeline": pipeline}
    root = Path(__file__).parents[3]
    log = folder / "log"
    with log.open("wb") as errors:
        child = subprocess.run(
            [sys.executable, "-m", "tests.integration.runtime.cluster_child", json.dumps(settings)],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={
                **os.environ,
                "SPARK_HOME": str(spark_home),
                "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
            },
            check=False,
            timeout=BOUND_S,
        )
    assert child.returncode == 0, "\n".join(log.read_text(errors="replace").splitlines()[-60:])
    return json.loads(child.stdout)


def test_spark_lists_its_executors(cluster):
    assert cluster["separate"]
    assert [executor["id"] for executor in cluster["executors"]] == ["0", "1"]
    assert all(executor["spark_partitions"] == 1 and ":" not in executor["host"] for executor in cluster["executors"])


def test_a_placed_job_runs_on_its_executor(cluster):
    (first,), (second,) = cluster["placed"]
    assert (first[0], second[0]) == ("0", "1")
    assert first[2] != second[2]


def test_a_union_of_placed_sources_repeats_the_spark_partitions(cluster):
    assert [ran[:2] for ran in cluster["union"]] == [["0", number] for number in (0, 1, 2)] * 2


def test_each_claim_gets_a_slot_of_its_own_and_a_free_one_keeps_identity_and_state(cluster):
    slots = cluster["slots"]
    assert slots["numbers"] == [0, 1, 2]
    assert len(set(slots["identities"])) == 3
    assert slots["again"] == [1, slots["identities"][1], ["0_3"]]


def test_a_claim_reports_the_host_and_the_tags_of_its_environment(cluster):
    assert cluster["slots"]["host"] == {"host": socket.gethostname(), "rack": "", "tags": {"zone": "east"}}


def test_copies_that_nobody_needs_are_removed_on_their_host(cluster):
    assert cluster["slots"]["cleaned"] == ["0_4"]
    assert cluster["slots"]["held"] == [3]


def test_a_claim_that_was_cancelled_gives_the_slot_back(cluster):
    (error,) = cluster["cancelled"]
    assert "cancelled" in error


def test_closing_the_place_of_a_living_executor_leaves_the_next_place_there_alone(cluster):
    ((executor, _, _),) = cluster["closed"]
    assert executor == "0"


def test_a_job_on_the_wrong_executor_is_refused_and_touches_nothing(cluster):
    assert "a Spark task of executor 0 was started on executor 1 and refused" in cluster["misplaced"]["error"]
    assert not cluster["misplaced"]["touched"]


def test_the_number_of_stream_threads_is_settled(cluster):
    added, removed = cluster["pipeline"]["refused"]
    assert "start another instance" in added
    assert "give executors back" in removed


def test_a_pipeline_is_shared_by_the_executors_and_exact(cluster, topics, table):
    tasks = cluster["pipeline"]["tasks"]
    assert cluster["pipeline"]["slots"] == ["0", "1"]
    assert sorted(task for ids in tasks.values() for task in ids) == [f"{s}_{p}" for s in (0, 1) for p in range(4)]
    expected = {}
    # Half of them were written while an executor was decommissioned.
    for number in (*range(ROWS), *range(ROWS)):
        shop = number % 13
        new = {"shop": f"shop{shop}", "n": 0, "total": 0, "city": f"city{shop}"}
        row = expected.setdefault(f"shop{shop}".encode(), new)
        row["n"] += 1
        row["total"] += number
    assert table(topics["sink"]) == expected


def test_what_executors_cannot_decode_is_in_the_dead_letter_topic(cluster, topics, consumed):
    letters = consumed(topics["letters"], full=True)
    assert [letter.value() for letter in letters] == [b"no JSON"] * 8
    offsets = [dict(letter.headers())["__streams.errors.offset"] for letter in letters]
    # A batch of records from each of two times, in each of four partitions.
    assert sorted(offsets.count(offset) for offset in set(offsets)) == [4, 4]


def test_stores_on_executors_are_queried(cluster):
    own = [number for number in range(ROWS) if number % 13 == 3]
    shop = {"shop": "shop3", "n": len(own), "total": sum(own), "city": "city3"}
    assert cluster["pipeline"]["queried"] == {
        "shop": shop,
        "none": None,
        "city": {"shop": "shop3", "city": "city3"},
        "count": ROWS,
        "uncommitted": len(own),
        "everywhere": 13,
        "asked": [shop],
        "pages": 13,
        "weighed": ["1_0", "1_1", "1_2", "1_3"],
        "lags": [0, 1, 2, 3],
    }


def test_executors_do_not_log_each_task(cluster):
    assert cluster["pipeline"]["logged"] == 0


def test_executors_are_released_and_asked_for_as_dynamic_allocation_does(cluster):
    tasks, fewer, more = (cluster["pipeline"][when] for when in ("tasks", "fewer", "more"))
    assert len(cluster["pipeline"]["new"]) == 1
    ((left, everything),) = fewer.items()
    assert sorted(everything) == sorted(task for ids in tasks.values() for task in ids)
    assert left in tasks
    assert set(more) == set(tasks), "the newcomer takes the free slot, its identity and its state"


def test_a_decommissioned_executor_leaves_while_it_still_works_for_others(cluster):
    more, after = cluster["pipeline"]["more"], cluster["pipeline"]["decommissioned"]
    assert after["there"]
    assert after["others"] == [[]]
    ((left, everything),) = after["left"].items()
    assert left in more
    assert sorted(everything) == sorted(task for ids in more.values() for task in ids)


def test_an_instance_whose_executors_are_gone_for_good_is_unhealthy_and_ends(cluster):
    dropped = cluster["dropped"]
    assert ["RUNNING", True, True, None] in dropped["seen"]
    waiting = [one for one in dropped["seen"] if one[0] == "REBALANCING" and "Spark has no executor" in (one[3] or "")]
    assert waiting
    assert all(not alive and not ready for _, alive, ready, _ in waiting)
    assert dropped["failure"].startswith("no executor has worked for this instance for 20 s (executor.wait.timeout.ms)")


def test_a_session_that_was_stopped_in_its_jvm_ends_an_idle_instance(cluster):
    assert cluster["stopped"].startswith("the Spark session is gone: it was stopped in its JVM")


def test_the_place_of_a_dead_executor_is_closed(cluster):
    first, second = cluster["lost"]
    assert first == second
    assert first.startswith("executor 0 on ")
    assert "is gone" in first
