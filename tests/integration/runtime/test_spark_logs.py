"""What a session that is made for the runtime leaves out of Spark's log."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

#: One job fails, one is cancelled, and something else is logged.
SCRIPT = """
import threading
import time
from sparkrelay import spark_session

# Without a period the status store has each task that begins or ends as soon as the bus has said so.
settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.ui.liveUpdate.period": "0"}
spark = spark_session("quiet", **settings)

def wait_until_tasks_run(expected):
    context = spark.sparkContext._jsc.sc()
    while True:
        context.listenerBus().waitUntilEmpty()
        if any(one.numRunningTasks() for one in context.statusTracker().getExecutorInfos()) == expected:
            return
        time.sleep(0.05)

spark.sparkContext._jvm.org.slf4j.LoggerFactory.getLogger("org.apache.spark.scheduler.TaskSetManager").warn("logged")
try:
    spark.range(2).selectExpr("raise_error('a' || id)")._jdf.collect()
except Exception as error:
    print(str(error).splitlines()[0])
wait_until_tasks_run(False)

def sleep():
    spark.sparkContext.setJobGroup("sleeping", "sleeping", True)
    try:
        spark.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 60000L)")._jdf.collect()
    except Exception as error:
        print(str(error).splitlines()[0])

sleeping = threading.Thread(target=sleep)
sleeping.start()
wait_until_tasks_run(True)
spark.sparkContext.cancelJobGroup("sleeping")
spark.sparkContext.cancelJobGroup("nothing")
sleeping.join()
# Its job is over at once, its task a moment later; in a session that is gone by then, its end is an error.
wait_until_tasks_run(False)
spark.stop()
"""


@pytest.mark.long
def test_failed_and_cancelled_tasks_are_left_out_and_all_else_is_logged():
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=250, check=True)
    assert "a0" in run.stdout or "a1" in run.stdout, run.stderr
    assert "WARN TaskSetManager: logged" in run.stderr
    for silenced in ("Exception in task", "Lost task", "failed 1 times", "\tat org.apache.spark", "Failed to cancel"):
        assert silenced not in run.stderr
