"""Instances die in the middle of a stateful processor's micro-batches, with and without their disk.

Each row is numbered once and in order, and each timer fires once.
"""

import contextlib
import json
from collections import defaultdict

import pytest
from tests.chaos.instances import Succession

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

POINTS = ("state-after-apply", "driver-before-commit", "driver-before-end-txn", "driver-after-end-txn")


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 24])
def test_every_row_is_numbered_once_and_every_timer_fires_once(
    kills, kafka, make_topic, produce, consumed, tmp_path, wait_until
):
    topics = {"orders": make_topic("orders", 2), "numbered": make_topic("numbered", 1)}
    written = []

    def write():
        new = [(f"u{id_ % 7}", {"id": id_}) for id_ in range(len(written), len(written) + 60)]
        written.extend(new)
        produce(topics["orders"], new)

    def results():
        found = [json.loads(value) for _, _, _, value in consumed(topics["numbered"])]
        return [row for row in found if not row["timer"]], [row["id"] for row in found if row["timer"]]

    with contextlib.closing(Succession(tmp_path, kafka, "transformation_instance.py", topics)) as instances:
        instances.die_in_turn(POINTS, kills, write)
        write()
        last = instances.last()
        ids = list(range(len(written)))
        wait_until(
            lambda: not last.alive or all(len(some) >= len(ids) for some in results()),
            f"not every row and timer: {last.tail()}",
            300,
        )
        assert last.alive, last.tail()
        assert last.stop() == "stopped NOT_RUNNING"
    rows, fired = results()
    assert sorted(fired) == ids
    numbers = defaultdict(list)
    for row in rows:
        assert row["n"] == row["listed"]
        numbers[row["user"]].append((row["n"], row["id"]))
    for user, found in numbers.items():
        own = [order["id"] for name, order in written if name == user]
        assert found == list(enumerate(own, 1)), user
