"""Instances die while records that fail are looked for, and while they are written to the dead letter topic.

Each bad record is there once in the end, and all others are in the results, once.
"""

import contextlib
import json
import shutil
import uuid
from collections import Counter

import pytest
from tests.chaos.instances import SESSION_TIMEOUT_MS, Instance
from tests.short_spark import SHORT_LIVED

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

POINTS = ("publish-after-send", "driver-before-commit", "driver-before-end-txn", "driver-after-end-txn")


@pytest.mark.parametrize("kills", [4, pytest.param(24, marks=pytest.mark.long)])
def test_every_bad_record_is_kept_once_and_every_other_one_counted(
    kills, kafka, make_topic, produce, consumed, tmp_path, wait_until
):
    topics = {name: make_topic(name, 2) for name in ("orders", "totals", "ids", "letters")}
    faults = tmp_path / "faults"
    settings = {
        "topics": topics,
        "spark": {"spark.master": "local[2]", **SHORT_LIVED},
        "ways": "in turn",
        "config": {
            "application.id": f"letters-{uuid.uuid4().hex[:8]}",
            "bootstrap.servers": kafka.bootstrap_servers,
            "state.dir": str(tmp_path / "state"),
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            "max.batch.records": 16,
            "max.batch.retries": 1,
            "auto.offset.reset": "earliest",
            "deserialization.exception.handler": "log-and-continue",
            "processing.exception.handler": "log-and-continue",
            "errors.dead.letter.queue.topic.name": topics["letters"],
        },
    }
    made, written = [], []

    def prepare():
        made.append(Instance(tmp_path, f"instance-{len(made)}", settings, faults, script="dead_letter_instance.py"))
        return made[-1]

    def write():
        new = range(len(written), len(written) + 60)
        written.extend(new)
        produce(topics["orders"], [(f"u{id_ % 7}", f"no json: {id_}" if id_ % 13 == 2 else {"id": id_}) for id_ in new])

    def good():
        return [id_ for id_ in written if id_ % 13 != 2 and id_ % 29 != 5]

    def counted():
        newest = {row["user"]: row for row in (json.loads(value) for *_, value in consumed(topics["totals"]))}
        return sum(row["n"] for row in newest.values()), sum(row["total"] for row in newest.values())

    with contextlib.ExitStack() as closing:
        closing.callback(lambda: [one.close() for one in made])
        spare = prepare()
        for kill in range(kills):
            write()
            faults.write_text(f"kill-{kill} {POINTS[kill % len(POINTS)]} {2 + kill % 3} instance")
            doomed, spare = spare, prepare()
            doomed.ask("start")
            doomed.wait_for_death(f"at {POINTS[kill % len(POINTS)]}, the {kill}th")
            if kill % 2:
                shutil.rmtree(tmp_path / "state")
        faults.unlink()
        write()
        spare.start()
        wait_until(
            lambda: not spare.alive or counted() == (len(good()), sum(good())),
            f"not every record: {spare.tail()}",
            300,
        )
        assert spare.alive, spare.tail()
        assert spare.stop() == "stopped NOT_RUNNING"
    assert Counter(json.loads(value)["id"] for *_, value in consumed(topics["ids"])) == Counter(good())
    letters = [value.decode() for *_, value in consumed(topics["letters"])]
    ids = [int(text.removeprefix("no json: ")) if text.startswith("no") else json.loads(text)["id"] for text in letters]
    assert Counter(ids) == Counter(set(written) - set(good()))
