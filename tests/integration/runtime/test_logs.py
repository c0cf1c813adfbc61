"""Python workers log as the script was set up to, whose session was made after that."""

import json
import subprocess
import sys

import pytest
from tests.short_spark import SHORT_LIVED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRIPT = """
import json, logging, sys
from sparkrelay import spark_session
from sparkrelay.observe.logs import configure_logging

configure_logging(as_json=True, levels={"workers": "INFO"})
spark = spark_session("logs", **json.loads(sys.argv[1]))


def said(batches):
    import logging

    logging.getLogger("sparkrelay.runtime.worker.mine").info("from a worker")
    logging.getLogger("another").info("too little to be logged there")
    yield from batches


logging.getLogger("sparkrelay.mine").info("from the script")
spark.range(1).mapInArrow(said, "id long").collect()
spark.stop()
"""


@pytest.mark.long
def test_workers_log_in_the_same_form():
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps({"spark.master": "local[1]", **SHORT_LIVED})],
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    lines = [json.loads(line) for line in child.stderr.splitlines() if line.startswith('{"time"')]
    found = {line["message"]: line for line in lines}
    ours, workers = found["from the script"], found["from a worker"]
    assert workers["logger"] == "sparkrelay.runtime.worker.mine"
    assert workers["process"] != ours["process"]
    assert "too little to be logged there" not in found
