"""Which executors there are, as Spark writes them; which one a worker belongs to; and who is turned away."""

from types import SimpleNamespace

import pytest

from sparkrelay.runtime.spark.executors import Executor, Executors, host_of
from sparkrelay.runtime.worker import context
from sparkrelay.runtime.worker.own.executor import OwnExecutor, executor_id, own_executor


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.7:41234", "10.0.0.7"), ("node-3:1", "node-3"), ("node-3", "node-3"), ("[fe80::1]:5", "[fe80::1]")],
)
def test_the_host_of_an_address(address, host):
    assert host_of(address) == host


def test_an_executor_names_the_location_that_spark_understands():
    assert Executor("7", "node-3", 4).location == "executor_node-3_7"
    assert str(Executor("7", "node-3", 4)) == "executor 7 on node-3"


@pytest.mark.parametrize(
    ("known", "leaving", "there"), [(["0", "1", "12"], {"1"}, {"0", "12"}), (["0"], {"0"}, set()), ([], set(), set())]
)
def test_an_executor_that_gets_no_further_task_counts_as_gone(known, leaving, there):
    backend = SimpleNamespace(isExecutorActive=lambda id_: id_ in known and id_ not in leaving)
    ids = SimpleNamespace(mkString=lambda between: between.join(known))
    java = SimpleNamespace(getExecutorIds=lambda: ids, schedulerBackend=lambda: backend)
    context = SimpleNamespace(
        getConf=lambda: SimpleNamespace(get=lambda key: None), _jsc=SimpleNamespace(sc=lambda: java)
    )
    executors = Executors(SimpleNamespace(sparkContext=context))
    assert executors.ids() == there
    assert {id_ for id_ in ("0", "1", "12", "7") if executors.alive(id_)} == there


def test_the_command_line_of_an_executor_says_its_id():
    command = "java -Xmx1g org.apache.spark.executor.CoarseGrainedExecutorBackend --executor-id 12 --cores 1"
    assert executor_id(command.split()) == "12"
    assert executor_id(["java", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]) is None
    assert executor_id(["java", "--executor-id"]) is None


def test_a_process_of_the_driver_belongs_to_no_executor():
    assert own_executor() is None


@pytest.mark.parametrize(
    ("own", "wanted", "attempt", "reason"),
    [
        (None, None, 0, None),
        (OwnExecutor("3", 1, ""), "3", 0, None),
        (OwnExecutor("3", 1, ""), None, 0, None),
        (OwnExecutor("4", 1, ""), "3", 0, "executor 3 was started on executor 4 and refused"),
        (None, "3", 0, "started on an executor that does not say its id"),
        (OwnExecutor("3", 1, ""), "3", 1, "attempt 1 of a Spark task was refused"),
        (None, None, 2, "attempt 2 of a Spark task was refused"),
    ],
)
def test_who_is_turned_away(monkeypatch, own, wanted, attempt, reason):
    monkeypatch.setattr(context, "own_executor", lambda: own)
    refused = context.refusal(wanted, attempt)
    assert refused is None if reason is None else reason in refused
