"""One of two instances is killed while both are asked: standby copies answer, and each answer is a committed value."""

import contextlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
import uuid

import pytest
from tests.chaos.instances import SESSION_TIMEOUT_MS, Instance
from tests.ports import own_port
from tests.short_spark import SHORT_LIVED
from tests.waiting import LONG

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(900)]

PARTITIONS = 4
USERS = [f"u{number}" for number in range(12)]


def asked(port, path, **headers):
    """Return status, who answered, and the row; 0 if nobody did, less than that if not to be asked again."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/stores/counts{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            tasks, body = answer.headers["SparkRelay-Tasks"], answer.read()
            # Who dies over an answer may have said a part of it.
            whole = tasks is not None and body.endswith(b"\n")
            return (answer.status, json.loads(tasks), body.splitlines()) if whole else (0, [], [])
    except urllib.error.HTTPError as error:
        with error:
            return (error.code if error.headers["Retry-After"] else -error.code), [], []
    except (OSError, http.client.HTTPException):
        return 0, [], []


class Asking:
    """Asks one instance for every key, again and again, on a thread, with a rest between."""

    def __init__(self, port, parameters, rest=0.01):
        self.port, self.parameters, self._rest = port, parameters, rest
        #: Key -> counts in the order in which they came, and by whom.
        self.seen = {user: [] for user in USERS}
        self.roles, self.refused = set(), set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.is_set():
            for user in USERS:
                status, tasks, rows = asked(self.port, f"/{user}{self.parameters}")
                if status == 200:
                    self.seen[user].append(json.loads(rows[0])["count"])
                    self.roles |= {task["role"] for task in tasks}
                else:
                    self.refused.add(status)
            time.sleep(self._rest)


class Crew:
    """Two instances, each at a port of its own, and the topic that they read."""

    def __init__(self, folder, kafka, make_topic):
        self._folder, self._kafka, self._made = folder, kafka, []
        self._topics = {"rows": make_topic("rows", PARTITIONS), "counts": make_topic("counts", PARTITIONS)}
        self.source = self._topics["rows"]
        self._application = f"queries-{uuid.uuid4().hex[:8]}"
        self.ports = own_port(), own_port()

    def prepare(self, port):
        """Return a new instance for a port, which finds what the one before it has left on the disk."""
        config = {
            "application.id": self._application,
            "bootstrap.servers": self._kafka.bootstrap_servers,
            "application.server": f"127.0.0.1:{port}",
            "state.dir": str(self._folder / f"state-{port}"),
            "num.standby.replicas": 1,
            "acceptable.recovery.lag": 0,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
        }
        settings = {
            "topics": self._topics,
            "config": config,
            "spark": {"spark.master": "local[2]", **SHORT_LIVED},
            "ways": "as it comes",
        }
        name = f"instance-{len(self._made)}"
        faults = self._folder / "faults"
        self._made.append(Instance(self._folder, name, settings, faults, script="query_instance.py"))
        return self._made[-1]

    def close(self):
        for instance in self._made:
            instance.close()


@pytest.fixture
def crew(kafka, tmp_path, make_topic):
    with contextlib.closing(Crew(tmp_path, kafka, make_topic)) as crew:
        yield crew


def share(*instances):
    return all(len(instance.tasks()["active"]) * 2 == PARTITIONS for instance in instances)


def complete(port):
    # A question that was forwarded goes no further. How far it lags a copy knows as of its last look alone.
    forwarded = {"SparkRelay-Forwarded": "a test"}
    return all(asked(port, f"/{user}?stale=true", **forwarded)[0] == 200 for user in USERS)


@pytest.mark.long
def test_standby_copies_answer_for_who_is_killed(crew, produce, wait_until):
    first, second = crew.ports
    one, other = map(crew.prepare, crew.ports)
    one.start()
    other.start()

    def write():
        # Ten of each key in a transaction: only whole tens are ever committed.
        produce(crew.source, [(user, {"n": 1}) for user in USERS for _ in range(10)], transactional_id=crew.source)

    def counts(port, parameters=""):
        return sorted(json.loads(row)["count"] for row in asked(port, parameters)[2])

    write()
    wait_until(lambda: share(one, other), "they do not share")
    for port in (first, second):
        wait_until(lambda port=port: counts(port) == [10] * len(USERS), f"not all rows at {port}")
    wait_until(lambda: complete(first) and complete(second), "copies lag")
    with Asking(second, "?stale=true") as stale, Asking(second, "") as strict:
        wait_until(lambda: all(stale.seen.values()) and all(strict.seen.values()), "nobody answers")
        one.kill()
        # At once, long before the group has noticed; what was answered before does not count.
        stale.roles.clear()
        before = {user: len(seen) for user, seen in stale.seen.items()}
        wait_until(lambda: all(len(stale.seen[user]) > n + 1 for user, n in before.items()), "no copy answers")
        assert "standby" in stale.roles
        write()
        wait_until(lambda: len(other.tasks()["active"]) == PARTITIONS, "they are not taken over")
        wait_until(lambda: counts(second) == [20] * len(USERS), "the second ten never came")
        wait_until(
            lambda: all(20 in seen for seen in (*stale.seen.values(), *strict.seen.values())), "they do not show"
        )
    for seen in (*stale.seen.values(), *strict.seen.values()):
        assert set(seen) <= {10, 20}
    assert strict.roles == {"active"}
    assert stale.refused == set(), "a copy was always there"
    assert strict.refused <= {503}
    for seen in strict.seen.values():
        assert seen == sorted(seen), "what was committed is not forgotten"


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 8])
def test_twenty_clients_ask_while_one_instance_after_the_other_dies(kills, crew, produce, wait_until):
    there = {port: crew.prepare(port) for port in crew.ports}
    for instance in there.values():
        instance.start()
    written = []

    def write():
        rows = [(user, {"n": 1}) for user in USERS for _ in range(10)]
        produce(crew.source, rows, transactional_id=crew.source)
        written.append(10 * (len(written) + 1))

    write()
    wait_until(lambda: share(*there.values()), "they do not share")
    # Without a rest, twenty take the cores from those whom they ask.
    ways = [(port, parameters) for parameters in ("", "?stale=true") for port in crew.ports]
    clients = [Asking(port, parameters, 0.1) for port, parameters in ways for _ in range(5)]
    # Of what is in no copy yet it is an answer that there is no such key.
    wait_until(lambda: all(map(complete, crew.ports)), "copies lag")
    with contextlib.ExitStack() as asking:
        for client in clients:
            asking.enter_context(client)
        for kill in range(kills):
            port, other = crew.ports if kill % 2 else reversed(crew.ports)
            next_one = crew.prepare(port)
            there[port].kill()
            write()
            wait_until(lambda other=other: len(there[other].tasks()["active"]) == PARTITIONS, "not taken over")
            there[port] = next_one.start()
            wait_until(lambda: share(*there.values()), "they do not share again")
            wait_until(lambda: all(map(complete, crew.ports)), "copies lag")
        wait_until(
            lambda: all(written[-1] in counts for client in clients for counts in client.seen.values()),
            "some client never sees the last ten",
        )
    for client in clients:
        assert client.refused <= {0, 503}, "whoever asked has got an answer, was asked to come again, or met nobody"
        for counts in client.seen.values():
            assert set(counts) <= set(written), "only what was committed shows"
            if not client.parameters:
                assert counts == sorted(counts), "what was committed is not forgotten"
