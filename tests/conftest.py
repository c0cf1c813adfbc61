"""One real Kafka for a whole test run, and the few tools that tests need around it.

Under pytest-xdist the workers share one broker: the first that needs it starts it, the others find its address in a
file, and the owner waits for the last of them before it stops it. All of it hangs on OS file locks, so that a
crashed worker holds nobody up.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import class_archives, evidence, order
from tests.examples import examples
from tests.topics import read_to_end, topic_maker, write
from tests.waiting import wait_until

# Modules beside the tests say what a failed assertion saw, as tests do.
pytest.register_assert_rewrite("tests.chaos", "tests.integration", "tests.unit")

# The same examples in every run, however slow the machine: what fails was broken by the change at hand. New examples
# are looked for on purpose, with HYPOTHESIS_PROFILE=search; and "whole" tries all of tests/examples.py.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", _PATIENT, derandomize=True, max_examples=examples(_PATIENT.max_examples))
settings.register_profile("whole", _PATIENT, derandomize=True)
settings.register_profile("search", _PATIENT, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

#: Its rack is there for those tests that look at racks. Under KIP-848 the broker says how soon a silent member is dead,
#: and it does not let its clients choose: 45 s would be long for tests.
BROKER = {
    "broker.rack": "rack-1",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    # A change of the group is acted on at once, not once a second.
    "group.consumer.assignment.interval.ms": "0",
    # Tests write records of years ago, which retention would begin to delete 30 s after the broker's start.
    "log.retention.ms": "-1",
}


#: No JVM of a test run lives long enough to earn back what a second compiler costs. Its environment says so to each,
#: whoever starts it; and as most are Spark's, they are pointed to an archive of its classes.
JAVA = " ".join(["-XX:TieredStopAtLevel=1", *class_archives.options("spark")])


#: Begun first where workers take whole files, so that none is left alone with a long one in the end.
LONGEST = (
    *(
        "chaos/test_fault_points.py",
        "runtime/test_executors.py",
        "chaos/test_standalone.py",
        "integration/test_demo.py",
    ),
    *(
        "chaos/test_takeover.py",
        "chaos/test_executor_kill.py",
        "chaos/test_older_transactions.py",
        "chaos/test_crowd.py",
    ),
    *("chaos/test_random_kills.py", "chaos/test_broker.py", "runtime/test_random.py"),
    *("runtime/test_long_batches.py", "runtime/test_termination.py"),
)


#: Where `make test` tries one case of each test, the first that is not marked `long`: pipelines of real Spark jobs.
FIRST_CASES = ("tests/integration/testing/", "tests/integration/runtime/")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put files that take long first, their tests in their order; or shuffle all, where a stress run asks for it.

    It is first, so that pytest then puts together the tests that share a fixture's parameter.
    """
    tried = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test in tried and test.startswith(FIRST_CASES):
            item.add_marker(pytest.mark.long)
        if not item.get_closest_marker("long"):
            tried.add(test)
    if seed := os.environ.get("TEST_ORDER"):
        items[:] = order.shuffled(items, seed)
        return
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get("/".join(item.path.parts[-2:]), len(rank)))


#: Tests that share something dear, such as brokers or a wheel, which each process would make for itself.
TOGETHER = (
    "tests/chaos/consumer/",
    "tests/integration/client/test_transactions_kafka.py",
    "tests/integration/consumer/conformance/bounce/",
    "tests/integration/consumer/test_replicas_kafka.py",
    "tests/integration/doctor/",
    "tests/integration/packaging/",
    "tests/integration/security/",
    "tests/unit/demo/test_flights.py",
    "tests/unit/test_site.py",
)


#: Unit tests that analyse pipelines in a Spark session: one process has it, and warms it up once.
WITH_SESSION = tuple(
    f"tests/unit/{place}"
    for place in (
        *("catalyst/", "topology/", "runtime/compile/", "runtime/group/", "runtime/instance/", "runtime/topics/"),
        *("runtime/batch/test_global_tables.py", "runtime/spark/test_executor_target.py"),
        "runtime/thread/test_membership.py",
    )
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give what stands together to one process, first; and all other tests one by one, whichever process is free.

    pytest-xdist's own `--dist loadgroup` does not find the groups with pytest 9.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            if nodeid.startswith(WITH_SESSION):
                return "with a session"
            return next((place for place in TOGETHER if nodeid.startswith(place)), nodeid)

    return Together(config, log)


def pytest_configure(config):
    """Let processes that tests start get Ctrl-C: a shell that runs us in the background has it ignored.

    And what tests make is not for others to write to, whatever the umask of that shell: it would be refused.
    """
    config.pluginmanager.register(evidence.Evidence(config.rootpath / evidence.FOLDER), "evidence")
    if JAVA not in (given := os.environ.get("JDK_JAVA_OPTIONS", "")):
        os.environ["JDK_JAVA_OPTIONS"] = f"{given} {JAVA}".strip()
    os.umask(0o022)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class SharedBroker:
    """What a worker that did not start the broker knows of it."""

    def __init__(self, bootstrap_servers):
        self.bootstrap_servers = bootstrap_servers


_AT_THE_END = ExitStack()


def pytest_sessionfinish():
    """Do what comes behind the last test, whose time limit would count for it in a fixture's end."""
    _AT_THE_END.close()


def _close_unused(broker, address, users, mutex):
    # Granted when the last user has let go.
    with _flock(users, fcntl.LOCK_EX), _flock(mutex, fcntl.LOCK_EX):
        address.unlink()
    broker.close()


@contextmanager
def _flock(path, kind):
    with path.open("a") as lock:
        fcntl.flock(lock, kind)
        yield


@pytest.fixture(scope="session")
def brokers_of_tests():
    """Have brokers load their classes from an archive, where one was made; and watch what they log."""
    from sparkrelay.devkafka import DevKafka

    options, start, more = DevKafka._jvm_options, DevKafka.start, class_archives.options("kafka")

    def started(broker):
        running = start(broker)
        evidence.watch(broker.log_path)
        return running

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DevKafka, "_jvm_options", lambda broker: [*options(broker), *more])
        patch.setattr(DevKafka, "start", started)
        yield


@pytest.fixture(scope="session")
def kafka(brokers_of_tests, tmp_path_factory):
    """The run's broker: `kafka.bootstrap_servers`. Never stop, pause or kill it: make a `DevKafka` of your own."""
    from sparkrelay.devkafka import DevKafka

    if "PYTEST_XDIST_WORKER" not in os.environ:
        with DevKafka(server_properties=BROKER) as broker:
            yield broker
        return

    folder = tmp_path_factory.getbasetemp().parent
    address, users, mutex = folder / "kafka.address", folder / "kafka.users", folder / "kafka.mutex"
    owned = None
    with users.open("a") as using:
        with _flock(mutex, fcntl.LOCK_EX):
            if address.exists():
                servers, log = address.read_text().splitlines()
                broker = SharedBroker(servers)
                evidence.watch(Path(log))
            else:
                owned = broker = DevKafka(server_properties=BROKER).start()
                address.write_text(f"{broker.bootstrap_servers}\n{broker.log_path}")
            fcntl.flock(using, fcntl.LOCK_SH)
        try:
            yield broker
        finally:
            fcntl.flock(using, fcntl.LOCK_UN)
            if owned is not None:
                _AT_THE_END.callback(_close_unused, owned, address, users, mutex)


@pytest.fixture
def kafka_admin(kafka):
    """confluent-kafka's admin client."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.fixture
def make_topic(kafka_admin):
    """`make_topic("hint", partitions=1, config=None)` makes a topic and returns its name, which no other test has."""
    return topic_maker(kafka_admin)


@pytest.fixture(scope="module")
def module_topic(kafka):
    """`make_topic` for a whole module."""
    from confluent_kafka.admin import AdminClient

    return topic_maker(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}))


@pytest.fixture
def produce(kafka):
    """`produce(topic, rows, **producer_config)` writes rows and returns when all are acknowledged.

    A row is a `(key, value)` pair or a mapping with `key`, `value`, `partition`, `timestamp` (ms) and `headers`, each
    optional. Text is written as UTF-8, a dict or list as JSON. Without a partition the key's murmur2 decides, as in
    Java.
    """
    return partial(write, kafka.bootstrap_servers)


@pytest.fixture
def consumed(kafka):
    """`consumed(topic, read_committed=True)` returns what is in a topic now, as `(partition, offset, key, value)`.

    It reads to the ends as they are when it is called: the last stable offsets with `read_committed`. With
    `full=True` the rows are confluent-kafka's messages.
    """

    def read(topic, read_committed=True, *, full=False):
        rows = list(read_to_end(kafka.bootstrap_servers, topic, read_committed=read_committed))
        rows.sort(key=lambda m: (m.partition(), m.offset()))
        return rows if full else [(m.partition(), m.offset(), m.key(), m.value()) for m in rows]

    return read


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory):
    """A home for Spark's `local-cluster`, which writes below it: what PySpark brought, in a folder of the test run."""
    import pyspark

    home = tmp_path_factory.mktemp("spark-home")
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    evidence.watch_all(home, "work/*/*/std???")
    return home


@pytest.fixture(name="wait_until")
def _wait_until():
    """`wait_until(condition, complaint, timeout_s=120)`: poll a condition; fail with the complaint."""
    return wait_until


@pytest.fixture
def project_root():
    return Path(__file__).parents[1]
