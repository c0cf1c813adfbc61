"""Which sessions are refused before anything runs on them, and by which words."""

import resource
import subprocess
import sys

import pytest

from sparkrelay.errors import ConfigException
from sparkrelay.runtime.spark.unusable_session import _PROBE, needed_megabytes, refuse_unusable

K8S = {"spark.master": "k8s://https://one:443"}
ALLOCATOR = "spark.kubernetes.allocation.pods.allocator"


def refuse(conf, *, python=sys.executable, local=False):
    refuse_unusable(conf, python, local=local)


@pytest.mark.parametrize("local", [True, False])
def test_speculation_is_refused_everywhere(local):
    with pytest.raises(ConfigException, match=r"spark\.speculation=true .*set it to false"):
        refuse({"spark.speculation": "true"}, local=local)


@pytest.mark.parametrize("local", [True, False])
def test_a_python_for_each_step_is_refused(local):
    with pytest.raises(ConfigException, match=r"spark\.python\.use\.daemon=false .*Leave it out"):
        refuse({"spark.python.use.daemon": "FALSE"}, local=local)
    refuse({"spark.python.use.daemon": "true"}, local=local)


@pytest.mark.parametrize(
    "conf", [{"spark.submit.deployMode": "cluster"}, K8S | {"spark.kubernetes.submitInDriver": "true"}]
)
def test_a_driver_in_the_cluster_is_refused(conf):
    with pytest.raises(
        ConfigException, match="--deploy-mode cluster: .*each stop would be a kill. Run python pipeline.py"
    ):
        refuse(conf)
    refuse({"spark.submit.deployMode": "client"})


@pytest.mark.parametrize("part", ["", "application.", "taskAndStage."])
def test_excluding_executors_is_refused_where_jobs_belong_to_them(part):
    conf = {f"spark.excludeOnFailure.{part}enabled": "TRUE"}
    with pytest.raises(ConfigException, match=rf"spark\.excludeOnFailure\.{part}enabled=true .*would wait forever"):
        refuse(conf)
    refuse(conf, local=True)
    refuse({f"spark.excludeOnFailure.{part}enabled": "false"})


@pytest.mark.parametrize("level", ["process", "node"])
@pytest.mark.parametrize(
    ("wait", "own"), [("10m", "0"), ("10m", "599s"), ("10m", "9min"), (None, "2999"), ("1h", "5000us")]
)
def test_a_shorter_wait_for_one_level_is_refused(level, wait, own):
    key = f"spark.locality.wait.{level}"
    conf = {key: own} | ({} if wait is None else {"spark.locality.wait": wait})
    with pytest.raises(ConfigException, match=rf"{key}={own} overrides spark\.locality\.wait=.* Leave it out"):
        refuse(conf)
    refuse(conf, local=True)


@pytest.mark.parametrize("own", ["10m", "600s", "1h", "1d", "600000"])
def test_a_wait_that_is_as_long_is_fine(own):
    refuse({"spark.locality.wait": "10m", "spark.locality.wait.process": own, "spark.locality.wait.node": own})


def test_a_value_that_spark_could_not_read_is_named():
    with pytest.raises(ConfigException, match="'soon' is not a number with one of Spark's units"):
        refuse({"spark.locality.wait.node": "soon"})


@pytest.mark.parametrize(
    "allocator",
    [
        "statefulset",
        "deployment",
        "org.apache.spark.scheduler.cluster.k8s.StatefulSetPodsAllocator",
        "org.apache.spark.scheduler.cluster.k8s.DeploymentPodsAllocator",
    ],
)
def test_pods_that_do_not_know_their_executor_are_refused(allocator):
    with pytest.raises(ConfigException, match=rf"{ALLOCATOR}={allocator} .*Set it to direct"):
        refuse(K8S | {ALLOCATOR: allocator})
    refuse({"spark.master": "spark://one:7077", ALLOCATOR: allocator})


@pytest.mark.parametrize("allocator", ["direct", "org.apache.spark.scheduler.cluster.k8s.ExecutorPodsAllocator"])
def test_pods_that_know_their_executor_are_fine(allocator):
    refuse(K8S | {ALLOCATOR: allocator})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Spark limits workers' memory on Linux only")
def test_workers_without_room_for_our_imports_are_refused():
    needed = needed_megabytes()
    for conf in ({}, {"spark.executor.pyspark.memory": "0"}, {"spark.executor.pyspark.memory": f"{needed}m"}):
        refuse(conf)
    for given, cores, each in (
        ("512m", None, 512),
        ("512", None, 512),
        ("1gb", "2", 512),
        (f"{needed}mb", "3", needed // 3),
    ):
        conf = {"spark.executor.pyspark.memory": given} | ({} if cores is None else {"spark.executor.cores": cores})
        with pytest.raises(ConfigException) as caught:
            refuse(conf)
        assert f"spark.executor.pyspark.memory={given} limits the address space" in str(caught.value)
        assert f"to {each} MB" in str(caught.value)
        assert f"one needs {needed} MB" in str(caught.value)
        assert f"set it to at least {needed * int(cores or 1)}m" in str(caught.value)


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Spark limits workers' memory on Linux only")
@pytest.mark.parametrize("enough", [True, False])
def test_what_is_said_to_be_needed_is_enough_for_a_worker_and_what_was_found_too_small_is_not(enough):
    limit = (needed_megabytes() if enough else 512) << 20
    child = subprocess.run(
        [sys.executable, "-c", _PROBE],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert (child.returncode == 0) == enough


def test_a_python_that_is_not_there_is_refused_where_this_host_knows():
    with pytest.raises(ConfigException) as caught:
        refuse({}, python="/no/such/python", local=True)
    assert "there is no program '/no/such/python'" in str(caught.value)
    for key in ("spark.pyspark.python", "PYSPARK_PYTHON", "spark.pyspark.driver.python"):
        assert key in str(caught.value)
    refuse({}, python="/no/such/python")
