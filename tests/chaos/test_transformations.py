"""Instances die in the middle of a stateful processor's micro-batches, with and without their disk.

Each row is numbered once and in order, and each timer fires once.
"""

import contextlib
import json
import shutil
import uuid
from collections import defaultdict

import pytest
from tests.chaos.instances import SESSION_TIMEOUT_MS, Instance
from tests.short_spark import SHORT_LIVED

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

POINTS = ("state-after-apply", "driver-before-commit", "driver-before-end-txn", "driver-after-end-txn")


@pytest.mark.parametrize("kills", [4, pytest.param(24, marks=pytest.mark.long)])
def test_every_row_is_numbered_once_and_every_timer_fires_once(
    kills, kafka, make_topic, produce, consumed, tmp_path, wait_until
):
    topics = {"orders": make_topic("orders", 2), "numbered": make_topic("numbered", 1)}
    faults = tmp_path / "faults"
    settings = {
        "topics": topics,
        "spark": {"spark.master": "local[2]", **SHORT_LIVED},
        "ways": "in turn",
        "config": {
            "application.id": f"numbers-{uuid.uuid4().hex[:8]}",
            "bootstrap.servers": kafka.bootstrap_servers,
            "state.dir": str(tmp_path / "state"),
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            "max.batch.records": 16,
            "auto.offset.reset": "earliest",
        },
    }
    made, written = [], []

    def prepare():
        name = f"instance-{len(made)}"
        made.append(Instance(tmp_path, name, settings, faults, script="transformation_instance.py"))
        return made[-1]

    def write():
        new = [(f"u{id_ % 7}", {"id": id_}) for id_ in range(len(written), len(written) + 60)]
        written.extend(new)
        produce(topics["orders"], new)

    def results():
        found = [json.loads(value) for _, _, _, value in consumed(topics["numbered"])]
        return [row for row in found if not row["timer"]], [row["id"] for row in found if row["timer"]]

    with contextlib.ExitStack() as closing:
        closing.callback(lambda: [one.close() for one in made])
        spare = prepare()
        for kill in range(kills):
            write()
            point = POINTS[kill % len(POINTS)]
            faults.write_text(f"kill-{kill} {point} {2 + kill % 3} instance")
            doomed, spare = spare, prepare()
            doomed.ask("start")
            doomed.wait_for_death(f"at {point}, the {kill}th")
            if kill % 2:
                shutil.rmtree(tmp_path / "state")
        faults.unlink()
        write()
        spare.start()
        ids = list(range(len(written)))
        wait_until(
            lambda: not spare.alive or all(len(some) >= len(ids) for some in results()),
            f"not every row and timer: {spare.tail()}",
            300,
        )
        assert spare.alive, spare.tail()
        assert spare.stop() == "stopped NOT_RUNNING"
    rows, fired = results()
    assert sorted(fired) == ids
    numbers = defaultdict(list)
    for row in rows:
        assert row["n"] == row["listed"]
        numbers[row["user"]].append((row["n"], row["id"]))
    for user, found in numbers.items():
        own = [order["id"] for name, order in written if name == user]
        assert found == list(enumerate(own, 1)), user
