"""Instances die while a stream looks into a table of groups, rows name their topics, and a processor's ticks go by."""

import contextlib
import datetime as dt
import json
import random
from collections import Counter

import pytest
from tests.chaos.instances import Succession

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(1800)]

POINTS = ("state-after-apply", "driver-before-commit", "driver-before-end-txn", "driver-after-end-txn")
TOPICS = ("orders", "probes", "totals", "found", "small", "large", "spent")
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
USERS = [f"u{number}" for number in range(7)]


class Rows:
    """The orders and probes so far."""

    def __init__(self):
        self._random = random.Random(0)
        self.orders, self.probes = [], []
        self._rounds = 0

    def next_orders(self):
        """Return the next round's orders: key and value."""
        self._rounds += 1
        made = [(self._random.choice(USERS), self._random.randrange(100)) for _ in range(60)]
        numbered = [(user, len(self.orders) + number, n) for number, (user, n) in enumerate(made)]
        self.orders += numbered
        return [order(user, id_, n, self._rounds * 15 + self._random.randrange(15)) for user, id_, n in numbered]

    def closing(self):
        """Return an order of each user that is so late that a tick gives out all others; they have no amount."""
        made = [(user, len(self.orders) + number, 0) for number, user in enumerate(USERS)]
        self.orders += made
        return [order(*one, (self._rounds + 100) * 15) for one in made]

    def next_probes(self):
        """Return a probe of each user."""
        made = [(f"p{len(self.probes) + number}", user) for number, user in enumerate(USERS)]
        self.probes += made
        return [(probe, {"user": user}) for probe, user in made]

    def totals(self):
        """Return each user's total and number of orders."""
        counts, sums = Counter(user for user, *_ in self.orders), Counter()
        for user, _, n in self.orders:
            sums[user] += n
        return {user: (sums[user], counts[user]) for user in counts}


def order(user, id_, n, second):
    return user, {"id": id_, "n": n, "at": (BEGIN + dt.timedelta(seconds=second)).isoformat()}


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 24])
def test_programs_are_exact(kills, kafka, make_topic, produce, consumed, tmp_path, wait_until):
    topics = {name: make_topic(name, 2) for name in TOPICS}
    rows = Rows()

    def write():
        produce(topics["orders"], rows.next_orders())
        produce(topics["probes"], rows.next_probes())

    def values(name):
        return [json.loads(value) for *_, value in consumed(topics[name])]

    def totals():
        # The key is no part of the value.
        newest = {key.decode(): json.loads(value) for *_, key, value in consumed(topics["totals"])}
        return {user: (row["total"], row["orders"]) for user, row in newest.items()}

    def found():
        """Return what the newest probe of each user has found; None while some have no answer."""
        answers = sorted(values("found"), key=lambda row: int(row["probe"][1:]))
        newest = {row["user"]: (row.get("total"), row.get("orders")) for row in answers}
        return newest if len(answers) >= len(rows.probes) else None

    def spent():
        counted = Counter()
        for row in values("spent"):
            counted[row["user"]] += row["spent"]
        return {user: n for user, n in counted.items() if n}

    def settled():
        answer = found()
        if answer is not None and answer != rows.totals():
            # The table is behind a topic of its changes, and may have been behind.
            produce(topics["probes"], rows.next_probes())
        wanted = {user: total for user, (total, _) in rows.totals().items()}
        return answer == rows.totals() and totals() == rows.totals() and spent() == wanted

    with contextlib.closing(Succession(tmp_path, kafka, "program_instance.py", topics)) as instances:
        instances.die_in_turn(POINTS, kills, write)
        write()
        produce(topics["orders"], rows.closing())
        last = instances.last()
        wait_until(
            lambda: not last.alive or settled(),
            lambda: f"{found()}, {totals()} and {spent()} of {rows.totals()}: {last.tail()}",
            300,
        )
        assert last.alive, last.tail()
        assert last.stop() == "stopped NOT_RUNNING"
    assert sorted(row["probe"] for row in values("found")) == sorted(probe for probe, _ in rows.probes)
    written = {name: sorted(row["id"] for row in values(name)) for name in ("small", "large")}
    wanted = {name: sorted(id_ for _, id_, n in rows.orders if (n < 50) == (name == "small")) for name in written}
    assert written == wanted
