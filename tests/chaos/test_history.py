"""Instances die while rows look into a table with a history, and while they wait for it, with and without their disk.

Each row finds what was there at its own time, once.
"""

import contextlib
import datetime as dt
import json
import random
from collections import Counter

import pytest
from tests.chaos.instances import Succession

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

POINTS = ("state-after-apply", "driver-before-commit", "driver-before-end-txn", "driver-after-end-txn")
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
USERS = [f"u{number}" for number in range(7)]
#: Seconds of event time in a round.
ROUND = 60


class Times:
    """The rates and orders so far, and what each order must find."""

    def __init__(self):
        self._random = random.Random(0)
        self._rounds = 0
        self._rates = {user: [] for user in USERS}
        self.expected = {}

    def rates(self):
        """Return the next round's rates; they come in any order."""
        found = []
        for user in USERS:
            for second in self._random.sample(range(ROUND), 5):
                at = self._rounds * ROUND + second
                self._rates[user].append(at)
                # A rate is the second that it holds from.
                found.append((user, {"rate": at, "since": self._stamp(at)}))
        self._random.shuffle(found)
        return found

    def orders(self):
        """Return the round's orders, whose times are in any order, too."""
        found = []
        for _ in range(60):
            user, at = self._random.choice(USERS), self._rounds * ROUND + self._random.randrange(ROUND)
            id_ = len(self.expected)
            self.expected[id_] = max((rate for rate in self._rates[user] if rate <= at), default=None)
            found.append((user, {"id": id_, "at": self._stamp(at)}))
        self._rounds += 1
        return found

    def closing(self):
        """Return an order of each user that comes so late that no other one waits any more."""
        return [(user, {"id": -1, "at": self._stamp((self._rounds + 1) * ROUND)}) for user in USERS]

    def _stamp(self, second):
        return (BEGIN + dt.timedelta(seconds=second)).isoformat()


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 24])
def test_every_row_finds_what_was_there_at_its_time(kills, kafka, make_topic, produce, consumed, tmp_path, wait_until):
    topics = {name: make_topic(name, 2) for name in ("rates", "orders", "found", "awaited")}
    times = Times()

    def write():
        produce(topics["rates"], times.rates())
        produce(topics["orders"], times.orders())

    def said(name):
        rows = [json.loads(value) for *_, value in consumed(topics[name])]
        return Counter((row["id"], row.get("rate")) for row in rows if row["id"] >= 0)

    with contextlib.closing(Succession(tmp_path, kafka, "history_instance.py", topics)) as instances:
        instances.die_in_turn(POINTS, kills, write)
        write()
        produce(topics["orders"], times.closing())
        last = instances.last()
        count = len(times.expected)
        wait_until(
            lambda: not last.alive or min(said("found").total(), said("awaited").total()) >= count,
            f"not every row: {last.tail()}",
            300,
        )
        assert last.alive, last.tail()
        assert last.stop() == "stopped NOT_RUNNING"
    assert said("found") == Counter(times.expected.items())
    assert said("awaited") == Counter(times.expected.items())
