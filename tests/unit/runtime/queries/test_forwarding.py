"""A question that another instance answers gives the client what that one would have said to it."""

import contextlib
import json
from typing import ClassVar

import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec
from tests.unit.runtime.queries.test_query_server import SPEC, Queries, application, ask

from sparkrelay.errors import StateStoreException
from sparkrelay.observe.http_server import HttpServer
from sparkrelay.operators.table.reading import StoreRead
from sparkrelay.protocol import HostInfo
from sparkrelay.runtime.queries.local_stores import ACTIVE, STANDBY, LocalTask
from sparkrelay.runtime.queries.metadata import KeyQueryMetadata
from sparkrelay.runtime.queries.peers import ARROW, JSON
from sparkrelay.runtime.queries.store_keys import KeptKeys
from sparkrelay.types import TaskId

ADA = "/stores/counts/ada"
ANYWHERE = state_spec([("user", pa.string())], [], [("n", pa.int64())], ())
OTHER_COLUMNS = state_spec([("user", pa.string())], [], [("n", pa.int32())], (), partitioned_by=("user",))


class Elsewhere(Queries):
    """An instance without tasks: another one, at that port, has them."""

    def __init__(self, port, spec=SPEC):
        super().__init__()
        self._port = port
        self.stores = type("Stores", (type(self.stores),), {"spec": lambda self, _: spec})()

    def tasks(self, _):
        return []

    def located(self, keys, key):
        del keys, key
        return KeyQueryMetadata(HostInfo("127.0.0.1", self._port), frozenset(), 0)


class Peer:
    """The application of another instance, and what its last answer was."""

    def __init__(self, queries=None, body=None, leaves_out=()):
        self._application, self._body, self._leaves_out = application(queries), body, leaves_out
        self.status = self.kind = self.body = None

    def __call__(self, environ, start_response):
        environ = {name: value for name, value in environ.items() if name not in self._leaves_out}
        answered = []
        body = b"".join(self._application(environ, lambda status, headers: answered.append((status, headers))))
        ((self.status, headers),) = answered
        self.kind, self.body = dict(headers)["Content-Type"], body if self._body is None else self._body
        start_response(
            self.status, [(name, value) for name, value in headers if name not in {"Content-Length", "Cache-Control"}]
        )
        return [self.body]


def forwarded(peer, path=ADA, spec=SPEC, **headers):
    with HttpServer(peer, host="127.0.0.1", port=0, name="peer") as server:
        made = application(Elsewhere(server.port, spec))
        try:
            return ask(made, path, **headers)
        finally:
            made.close()


class Absent(Queries):
    def read(self, spec, reading):
        found = super().read(spec, reading)
        return StoreRead(found.rows.slice(0, 0), watermark=12, places=(-1,))


def test_a_row_is_passed_on_as_it_is():
    peer = Peer()
    assert forwarded(peer) == ask(application(), ADA)
    assert (peer.kind, peer.body) == (JSON, b'{"user":"ada","n":3}\n')


def test_a_key_that_is_not_there_is_not_there():
    status, headers, body = forwarded(Peer(Absent()))
    assert (status, json.loads(body)) == (404, {"error": "the store has no such key"})
    assert (status, headers, body) == ask(application(Absent()), ADA)


@pytest.mark.parametrize("left_out", ["HTTP_SPARKRELAY_ROW", "HTTP_SPARKRELAY_FORWARDED"])
def test_an_older_instance_sends_rows_and_they_are_written_here(left_out):
    peer = Peer(leaves_out={left_out})
    assert forwarded(peer) == ask(application(), ADA)
    assert peer.kind == (ARROW if left_out.endswith("ROW") else JSON)


class Behind(Absent, Elsewhere):
    """An instance with an empty copy that lacks so many offsets; the task runs in another one."""

    def __init__(self, port, lag):
        super().__init__(port)
        self._lag = lag

    def tasks(self, _):
        return [LocalTask(TaskId(0, 0), "0_0", STANDBY, None, lag=self._lag, width=1, read=self.read)]


@pytest.mark.parametrize(("lag", "status"), [(0, 404), (7, 200), (None, 200)])
def test_a_copy_that_has_not_come_so_far_leaves_the_answer_to_the_others(lag, status):
    with HttpServer(Peer(), host="127.0.0.1", port=0, name="peer") as server:
        made = application(Behind(server.port, lag))
        try:
            assert ask(made, f"{ADA}?stale=true")[0] == status
        finally:
            made.close()


@pytest.mark.parametrize(("lag", "status"), [(7, 404), (None, 503)])
def test_where_nobody_else_answers_a_copy_says_what_it_has_and_how_far_it_is(lag, status):
    made = application(Behind(1, lag), queries_timeout_ms=500)
    try:
        found, headers, _ = ask(made, f"{ADA}?stale=true")
        assert found == status
        if status == 404:
            assert json.loads(headers["SparkRelay-Tasks"])[0]["lag"] == lag
    finally:
        made.close()


class Group:
    """So many partitions, one if not said, at these instances: of the active task and of standby copies."""

    def __init__(self, active, *standby, width=1):
        self._active, self._standby, self._width = active, frozenset(standby), width
        self.hosts = frozenset({active, *standby})

    def width(self, _):
        return self._width

    def hosts_of(self, _, __):
        return self._active, self._standby


class Among(Absent):
    """An instance of several, with a copy that lacks so many offsets and has no such key, or without one."""

    def __init__(self, group, lag=None):
        super().__init__()
        self.group, self._lag = group, lag

    def located(self, keys, key):
        del keys, key
        return KeyQueryMetadata(*self.group.hosts_of(0, 0), 0)

    def tasks(self, _):
        if self._lag is None:
            return []
        return [LocalTask(TaskId(0, 0), "0_0", STANDBY, None, lag=self._lag, width=1, read=self.read)]


@contextlib.contextmanager
def serving(*queries):
    """Serve several instances; of standby copies the first one is asked first."""
    made = [application(one) for one in queries]
    by_port = {}

    def answer(environ, start_response):
        return by_port[int(environ["SERVER_PORT"])](environ, start_response)

    with contextlib.ExitStack() as stack:
        for one in made:
            stack.callback(one.close)
        servers = [stack.enter_context(HttpServer(answer, host="127.0.0.1", port=0, name="peer")) for _ in made]
        ports = sorted(server.port for server in servers)
        by_port.update(zip(ports, made, strict=True))
        yield [HostInfo("127.0.0.1", port) for port in ports]


NOBODY = HostInfo("127.0.0.1", 1)


@pytest.mark.parametrize("path", [f"{ADA}?stale=true", f"{ADA}?stale=true&partition=0"])
def test_a_standby_elsewhere_that_has_not_come_so_far_leaves_the_answer_to_the_next(path):
    """The active task is away; of two copies one has not seen the key yet."""
    with serving(Among(Group(NOBODY), lag=7), Queries()) as (behind, fresh):
        made = application(Among(Group(NOBODY, behind, fresh)))
        try:
            assert ask(made, path)[0] == 200
        finally:
            made.close()
        made = application(Among(Group(NOBODY, behind)))
        try:
            status, headers, _ = ask(made, path)
            assert (status, json.loads(headers["SparkRelay-Tasks"])[0]["lag"]) == (404, 7)
        finally:
            made.close()


@pytest.mark.parametrize(("own", "said"), [(3, 3), (9, 7)])
@pytest.mark.parametrize("path", [f"{ADA}?stale=true", f"{ADA}?stale=true&partition=0"])
def test_where_all_copies_lack_something_one_says_so(path, own, said):
    if "partition" in path:
        said = own  # each of them does, the own copy first
    with serving(Among(Group(NOBODY), lag=7)) as (behind,):
        made = application(Among(Group(NOBODY, behind), lag=own))
        try:
            status, headers, _ = ask(made, path)
            assert (status, json.loads(headers["SparkRelay-Tasks"])[0]["lag"]) == (404, said)
        finally:
            made.close()


def test_a_partition_that_is_named_is_asked_where_its_task_runs_if_the_copy_here_lacks_something():
    with serving(Queries()) as (active,):
        for lag, status in ((0, 404), (7, 200)):
            made = application(Among(Group(active), lag=lag))
            try:
                assert ask(made, f"{ADA}?stale=true&partition=0")[0] == status
            finally:
                made.close()
    made = application(Among(Group(NOBODY), lag=7))
    try:
        status, headers, _ = ask(made, f"{ADA}?stale=true&partition=0")
        assert (status, json.loads(headers["SparkRelay-Tasks"])[0]["lag"]) == (404, 7)
    finally:
        made.close()


@pytest.mark.parametrize("lag", [7, None])
def test_a_row_that_a_copy_has_which_lacks_something_is_the_answer(lag):
    class Held(Among):
        read = Queries.read

        def tasks(self, _):
            return [LocalTask(TaskId(0, 0), "0_0", STANDBY, None, lag=lag, width=1, read=self.read)]

    with serving(Among(Group(NOBODY), lag=9)) as (behind,):
        made = application(Held(Group(NOBODY, behind)))
        try:
            for path in (f"{ADA}?stale=true", f"{ADA}?stale=true&partition=0"):
                assert ask(made, path)[0] == 200
        finally:
            made.close()


class Two(Among):
    """An instance with two partitions: of the first it runs the task, of the other it has a copy."""

    def __init__(self, group, lag, error=None):
        super().__init__(group, lag)
        self._error = error
        self.stores = type("Stores", (type(self.stores),), {"spec": lambda *_: ANYWHERE})()

    def located(self, keys, key):
        return KeyQueryMetadata(None, frozenset(), keys.partition(key, 2))

    def tasks(self, _):
        def fail(*_):
            raise self._error

        read = self.read if self._error is None else fail
        yield LocalTask(TaskId(0, 0), "0_0", ACTIVE, 1, width=2, read=read)
        yield LocalTask(TaskId(0, 1), "0_1", STANDBY, None, lag=self._lag, width=2, read=self.read)


class Second:
    """Runs the task of the second partition."""

    def tasks(self, _):
        return [LocalTask(TaskId(0, 1), "0_1", ACTIVE, 1, width=2, read=self.read)]


class Having(Second, Queries):
    pass


class Without(Second, Absent):
    pass


@pytest.mark.parametrize("lag", [7, None])
def test_a_task_that_cannot_be_read_calls_no_key_missing_whatever_others_say(lag):
    damaged = StateStoreException("damaged")
    with serving(Having(), Without()) as (having, without):
        for error, peer, status in ((None, having, 200), (None, without, 404), (damaged, without, 503)):
            made = application(Two(Group(peer, width=2), lag, error))
            try:
                assert ask(made, f"{ADA}?stale=true&partition=0,1")[0] == status
            finally:
                made.close()


class Apart(Queries):
    """One of two instances with a partition each; the row is in the one that is not where the key belongs."""

    places: ClassVar[dict[int, HostInfo]] = {}

    def __init__(self, partition, *, has_row):
        super().__init__()
        self._partition, self._has_row = partition, has_row
        self.group = self

    @property
    def hosts(self):
        return frozenset(self.places.values())

    def width(self, _):
        return 2

    def hosts_of(self, _, partition):
        return self.places[partition], frozenset()

    def located(self, keys, key):
        partition = keys.partition(key, 2)
        return KeyQueryMetadata(self.places[partition], frozenset(), partition)

    def tasks(self, _):
        return [LocalTask(TaskId(0, self._partition), "", ACTIVE, 1, width=2, read=self.read)]

    def read(self, spec, reading):
        found = super().read(spec, reading)
        return found if self._has_row else StoreRead(found.rows.slice(0, 0), watermark=12, places=(-1,))


def test_a_partition_that_is_named_is_asked_wherever_it_is():
    """Another partitioner than Kafka's default one may have written the topic."""
    keys = KeptKeys(SPEC)
    belongs = keys.partition(keys.columns("ada"), 2)
    with contextlib.ExitStack() as stack:
        made = {}
        for partition in range(2):
            made[partition] = application(Apart(partition, has_row=partition != belongs))
            stack.callback(made[partition].close)
            server = HttpServer(made[partition], host="127.0.0.1", port=0, name="peer")
            Apart.places[partition] = HostInfo("127.0.0.1", stack.enter_context(server).port)
        for asked in made.values():
            status, _, body = ask(asked, f"{ADA}?partition={1 - belongs}")
            assert (status, body) == (200, b'{"user":"ada","n":3}\n')
            assert ask(asked, f"{ADA}?partition=0,1")[0] == 200
            assert ask(asked, f"{ADA}?partition={belongs}")[0] == 404


def test_who_wants_an_arrow_stream_gets_one():
    peer = Peer()
    _, headers, body = forwarded(peer, HTTP_ACCEPT=ARROW)
    assert (headers["Content-Type"], peer.kind) == (ARROW, ARROW)
    assert pa.ipc.open_stream(body).read_all().to_pylist() == [{"user": "ada", "n": 3}]


def test_without_a_limit_above_none_there_is_no_row():
    assert forwarded(Peer(), f"{ADA}?limit=0")[0] == ask(application(), f"{ADA}?limit=0")[0] == 404


def test_rows_of_other_columns_are_of_another_release():
    assert KeptKeys(SPEC).fingerprint != KeptKeys(OTHER_COLUMNS).fingerprint
    status, _, body = forwarded(Peer(), spec=OTHER_COLUMNS)
    assert status == 503
    assert "another release" in json.loads(body)["error"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"a":1}\n{"a":2}\n', b"[1]\n", b'"text"\n', b'{"a":\n1}\n', b"{\n"])
def test_what_is_no_row_is_not_passed_on(body):
    status, _, answer = forwarded(Peer(body=body))
    assert status == 503
    assert "is not a row in JSON" in json.loads(answer)["error"]
