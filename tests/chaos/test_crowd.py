"""Three instances join and leave at random, by a stop or by SIGKILL, under load: nothing is lost, nothing comes twice.

CROWD_SECONDS says for how long; the whole suite takes five minutes.
"""

import os
import random
import threading
import time

import pytest
from tests.chaos.instances import EVERYTHING
from tests.waiting import LONG

SECONDS = int(os.environ.get("CROWD_SECONDS", "300"))
RECORDS_PER_SECOND = 2000

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(SECONDS * 4 + 300)]


class Load(threading.Thread):
    """Writes at a steady rate until it is asked to stop."""

    def __init__(self, ledger):
        super().__init__(daemon=True)
        self._ledger, self._done, self.failure = ledger, threading.Event(), None

    def run(self):
        due = time.monotonic()
        try:
            while not self._done.is_set():
                self._ledger.write(RECORDS_PER_SECOND // 20)
                due += 0.05
                self._done.wait(max(0.0, due - time.monotonic()))
        except Exception as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def stop(self):
        self._done.set()
        self.join(LONG)
        if self.failure is not None:
            raise self.failure


def test_three_come_and_go(crowd, ledger, seed, wait_until):
    dice = random.Random(seed + 2)
    present = [crowd.start(), crowd.start(), crowd.start()]
    load = Load(ledger)
    load.start()
    until = time.monotonic() + SECONDS
    left = {"stop": 0, "kill": 0}
    while time.monotonic() < until:
        rest = time.monotonic() + dice.uniform(3, 15)
        while time.monotonic() < rest:
            ledger.read(0.2)
        way = dice.choice(["stop", "kill"])
        leaving = present.pop(dice.randrange(len(present)))
        if way == "stop":
            assert leaving.stop() == "stopped NOT_RUNNING", leaving.tail()
        else:
            leaving.kill(only_driver=dice.random() < 0.5)
        left[way] += 1
        present.append(crowd.start())
    load.stop()
    print(f"CHAOS_SEED={seed}: {left}, {ledger.updates} updates read")
    ledger.wait_for_results(crowd, 300)
    wait_until(
        lambda: sorted(task for one in present for task in one.tasks()["active"]) == sorted(EVERYTHING),
        "not every task is active somewhere, once",
        180,
    )
    for one in present:
        assert one.stop() == "stopped NOT_RUNNING", one.tail()
    ledger.read_again()
