"""Members join, leave, vanish and ask for rebalances at random, faster than the group can follow, while records flow.

The order of events comes from a seed, which a failure names; ``SPARKRELAY_STORM_SEED`` repeats one or tries another.
"""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from tests.waiting import LONG

from sparkrelay.consumer.base.events import Rejoin

pytestmark = pytest.mark.integration

PARTITIONS, STEPS, MOST = 6, 14, 4
SEED = int(os.environ.get("SPARKRELAY_STORM_SEED", "5"))
#: Some offer two: the group must find the common one over and over.
OFFERS = {
    "range": ["range", "range,roundrobin", "cooperative-sticky,range"],
    "cooperative-sticky": ["cooperative-sticky"],
    "sticky": ["sticky", "sticky,range"],
    "KIP-848": ["KIP-848"],
    "KIP-848 and range": ["KIP-848", "range"],
    "KIP-848 and cooperative-sticky": ["KIP-848", "cooperative-sticky"],
}


class Storm:
    def __init__(self, members, topic, offers, rnd, *, kills):
        self._members, self._topic, self._offers, self._rnd, self._kills = members, topic, offers, rnd, kills
        self.living, self.gone, self.story = [], [], []

    def join(self):
        offer = self._rnd.choice(self._offers)
        settings, without = {"enable_auto_commit": True, "auto_commit_interval_ms": 200}, ()
        if offer == "KIP-848":
            settings |= {"group_protocol": "consumer"}
            without = ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms")
        else:
            settings |= {"partition_assignment_strategy": offer, "session_timeout_ms": 6000}
        delay = self._rnd.choice([0, 0, 0.3])
        hooks = {"revoked": lambda *_: time.sleep(delay)}  # an application that is slow to let go
        self.living.append(self._members([self._topic], hooks=hooks, without=without, **settings))
        self.story.append(f"{len(self.living) + len(self.gone)} joins with {offer}")

    def leave(self):
        self._go("leaves").stop()

    def vanish(self):
        self._go("vanishes").vanish()

    def ask(self):
        self._rnd.choice(self.living).consumer._network.submit(Rejoin("the storm asks"))
        self.story.append("asks for a rebalance")

    def _go(self, how):
        member = self.living.pop(self._rnd.randrange(len(self.living)))
        self.gone.append(member)
        self.story.append(how)
        return member

    def step(self):
        kinds = [self.join] * (2 if len(self.living) < MOST else 0)
        if len(self.living) > 1:
            kinds += [self.leave, self.ask, self.vanish if self._kills else self.leave]
        self._rnd.choice(kinds)()
        # Sometimes long enough to become stable, often in the middle of it.
        pause = self._rnd.choice([0, 0.05, 0.2, 0.5, 2])
        self.story.append(f"pause of {pause} s")
        time.sleep(pause)

    @property
    def everybody(self):
        return self.gone + self.living


@pytest.mark.long
@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("strategy", OFFERS)
def test_a_storm_loses_nothing_and_gives_nothing_twice(members, make_topic, kafka, wait_until, caplog, strategy, kills):
    from confluent_kafka import Producer

    topic, rnd = make_topic("storm", partitions=PARTITIONS), random.Random(f"{SEED} {strategy}")
    storm, calm, counts = Storm(members, topic, OFFERS[strategy], rnd, kills=kills), threading.Event(), []

    def write():
        producer, count = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0}), 0
        while not calm.wait(0.02):
            for partition in range(PARTITIONS):
                producer.produce(topic, b"x", partition=partition)
            producer.flush(LONG)
            count += 1
        counts.append(count)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        storm.join()
        for _ in range(STEPS):
            storm.step()
    finally:
        calm.set()
        writer.join(LONG)

    reported = f"SPARKRELAY_STORM_SEED={SEED}: {'; '.join(storm.story)}"
    everything = {(topic, p, offset) for p in range(PARTITIONS) for offset in range(counts[0])}
    wait_until(
        lambda: everything <= {r for m in storm.everybody for r in list(m.read)}, f"records were lost\n{reported}", 120
    )
    wait_until(
        lambda: sorted(p.partition for m in storm.living for p in list(m.held)) == list(range(PARTITIONS)),
        f"the living do not share all partitions\n{reported}",
        120,
    )
    assert members.owners.clashes == [], reported
    lost = any(kind == "lost" for m in storm.everybody for kind, _ in m.story)
    if not (kills or lost or "automatic commit failed" in caplog.text):
        # Whoever gave a partition up committed first, so its next owner began exactly there. A commit may fail, as in
        # Java, when a member leaves while the group waits for its leader.
        assert sum(len(m.read) for m in storm.everybody) == len(everything), reported
    assert [m.errors for m in storm.living] == [[]] * len(storm.living), reported
