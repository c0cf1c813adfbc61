"""Instances die while records that fail are looked for, and while they are written to the dead letter topic.

Each bad record is there once in the end, and all others are in the results, once.
"""

import contextlib
import json
from collections import Counter

import pytest
from tests.chaos.instances import Succession

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

POINTS = ("publish-after-send", "driver-before-commit", "driver-before-end-txn", "driver-after-end-txn")


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 24])
def test_every_bad_record_is_kept_once_and_every_other_one_counted(
    kills, kafka, make_topic, produce, consumed, tmp_path, wait_until
):
    topics = {name: make_topic(name, 2) for name in ("orders", "totals", "ids", "letters")}
    config = {
        "max.batch.retries": 1,
        "deserialization.exception.handler": "log-and-continue",
        "processing.exception.handler": "log-and-continue",
        "errors.dead.letter.queue.topic.name": topics["letters"],
    }
    written = []

    def write():
        new = range(len(written), len(written) + 60)
        written.extend(new)
        produce(topics["orders"], [(f"u{id_ % 7}", f"no json: {id_}" if id_ % 13 == 2 else {"id": id_}) for id_ in new])

    def good():
        return [id_ for id_ in written if id_ % 13 != 2 and id_ % 29 != 5]

    def counted():
        newest = {row["user"]: row for row in (json.loads(value) for *_, value in consumed(topics["totals"]))}
        return sum(row["n"] for row in newest.values()), sum(row["total"] for row in newest.values())

    def letters():
        texts = [value.decode() for *_, value in consumed(topics["letters"])]
        return Counter(int(t.removeprefix("no json: ")) if t.startswith("no") else json.loads(t)["id"] for t in texts)

    def all_there():
        # The last record may be a bad one, behind everything that is counted.
        return counted() == (len(good()), sum(good())) and letters().total() >= len(written) - len(good())

    with contextlib.closing(Succession(tmp_path, kafka, "dead_letter_instance.py", topics, config)) as instances:
        instances.die_in_turn(POINTS, kills, write)
        write()
        last = instances.last()
        wait_until(
            lambda: not last.alive or all_there(),
            f"not every record: {last.tail()}",
            # Each bad one is found by halving, a job that fails at a time.
            900,
        )
        assert last.alive, last.tail()
        assert last.stop() == "stopped NOT_RUNNING"
    assert Counter(json.loads(value)["id"] for *_, value in consumed(topics["ids"])) == Counter(good())
    assert letters() == Counter(set(written) - set(good()))
