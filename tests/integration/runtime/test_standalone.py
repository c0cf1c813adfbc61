"""Scripts on a standalone cluster: by `spark-submit`, and with workers whose Python is not ours."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pyspark
import pytest
from tests.short_spark import SHORT_LIVED
from tests.standalone_cluster import HOST, StandaloneCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

NUMBERS = range(100)
CHILD = Path(__file__).with_name("standalone_child.py")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory, spark_home):
    cluster = StandaloneCluster(tmp_path_factory.mktemp("standalone"), spark_home, recovers=False)
    try:
        cluster.start_master().add_worker()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def run(kafka, make_topic, produce, tmp_path, standalone):
    """`run(command, spark, environment)` runs the script to its end; returns what it printed last, and its log."""

    def to_its_end(command, spark, environment=None):
        source, sink = make_topic("source", 2), make_topic("sink", 2)
        produce(source, [("all", {"n": n}) for n in NUMBERS])
        config = {
            "application.id": source,
            "bootstrap.servers": kafka.bootstrap_servers,
            "state.dir": str(tmp_path / "state"),
        }
        settings = {"source": source, "sink": sink, "total": sum(NUMBERS), "config": config, "spark": spark}
        root = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        answer = subprocess.run(
            [*command, str(CHILD), json.dumps(settings)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert answer.returncode == 0, f"{answer.stderr[-4000:]}\n{standalone.tail()}"
        return answer.stdout.splitlines()[-1], answer.stderr

    return to_its_end


@pytest.mark.long
def test_spark_submit_runs_a_script(run, standalone):
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    options = {"spark.driver.host": HOST, **SHORT_LIVED}
    words = [word for key, value in options.items() for word in ("--conf", f"{key}={value}")]
    environment = {"PYSPARK_PYTHON": sys.executable}
    ended, _ = run([submit, "--master", standalone.url, *words], {}, environment)
    assert ended == "NOT_RUNNING"


@pytest.mark.long
def test_workers_whose_python_lacks_us_are_a_clear_error(run, standalone, tmp_path):
    venv.create(tmp_path / "bare")
    bare = str(tmp_path / "bare" / "bin" / "python")
    spark = {"spark.master": standalone.url, "spark.driver.host": HOST, **SHORT_LIVED}
    # Nor does it find what the test run has on its path.
    ended, _ = run([sys.executable], {**spark, "spark.executorEnv.PYTHONPATH": ""}, {"PYSPARK_PYTHON": bare})
    assert ended.startswith("StreamsException: Spark's Python workers cannot be started")
    assert f"claiming a slot on executor 0 on {HOST}" in ended
    assert "No module named 'sparkrelay'" in ended
