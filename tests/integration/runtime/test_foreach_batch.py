"""On a cluster of two executors, the function on the driver reads what each executor has kept."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.long
def test_rows_are_read_on_the_executor_that_has_the_task(kafka, make_topic, produce, tmp_path, spark_home):
    topic, rows = make_topic("orders", 4), 800
    produce(topic, [(f"u{number % 40}", {"id": number}) for number in range(rows)])
    config = {
        "application.id": f"batches-{uuid.uuid4().hex[:8]}",
        "bootstrap.servers": kafka.bootstrap_servers,
        "state.dir": str(tmp_path / "state"),
        "auto.offset.reset": "earliest",
    }
    root = Path(__file__).parents[3]
    settings = json.dumps({"topic": topic, "rows": rows, "config": config})
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    child = subprocess.run(
        [sys.executable, "-m", "tests.integration.runtime.foreach_batch_child", settings],
        cwd=root,
        capture_output=True,
        text=True,
        env={**os.environ, "SPARK_HOME": str(spark_home), "PYTHONPATH": path},
        check=False,
        timeout=500,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    answer = json.loads(child.stdout)
    assert (answer["failed"], answer["processes"]) == (None, 2)
    assert {task for task, *_ in answer["calls"]} == {"0_0", "0_1", "0_2", "0_3"}
    assert sorted(id_ for _, ids, _ in answer["calls"] for id_ in ids) == list(range(rows))
    assert all(ids == sorted(ids) and users == len({id_ % 40 for id_ in ids}) for _, ids, users in answer["calls"])
    assert list((tmp_path / "state").rglob("*.arrow")) == [], "removed on the executors' hosts, too"
