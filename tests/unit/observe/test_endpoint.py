"""The HTTP endpoint: what it answers, whom it refuses, and that nothing of it is left."""

import socket
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.ports import own_port
from tests.waiting import LONG

from sparkrelay.errors import ConfigException
from sparkrelay.observe.endpoint import serve


def asked(endpoint, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}", timeout=LONG) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_of_the_moment(snapshot):
    now = [snapshot(state="REBALANCING")]
    with serve(lambda: now[0], port=0) as endpoint:

        def state():
            status, text = asked(endpoint, "/metrics")
            assert status == 200
            families = {family.name: family for family in text_string_to_metric_families(text)}
            return [sample.labels["state"] for sample in families["sparkrelay_state"].samples if sample.value]

        assert state() == ["REBALANCING"]
        now[0] = snapshot(state="RUNNING")
        assert state() == ["RUNNING"]


@pytest.mark.parametrize(
    ("state", "trouble", "answer"),
    [
        ("RUNNING", None, (200, "RUNNING\n")),
        ("REBALANCING", "no broker answers", (200, "REBALANCING: no broker answers\n")),
        ("CREATED", None, (503, "CREATED\n")),
        ("PENDING_SHUTDOWN", None, (503, "PENDING_SHUTDOWN\n")),
        ("ERROR", "StreamsException: größer", (503, "ERROR: StreamsException: größer\n")),
    ],
)
def test_health_says_whether_and_why(state, trouble, answer, snapshot):
    with serve(lambda: snapshot(state=state, trouble=trouble), port=0) as endpoint:
        assert asked(endpoint, "/health") == answer


def test_who_cannot_work_is_neither_healthy_nor_ready(snapshot):
    none = "Spark has no executor; waiting for one"
    with serve(lambda: snapshot(state="REBALANCING", blocked=True, trouble=none), port=0) as endpoint:
        for page in ("/health", "/ready"):
            assert asked(endpoint, page) == (503, f"REBALANCING: {none}\n")


@pytest.mark.parametrize(
    ("state", "status"), [("RUNNING", 200), ("REBALANCING", 503), ("CREATED", 503), ("ERROR", 503)]
)
def test_ready_is_who_has_its_tasks_running(state, status, snapshot):
    with serve(lambda: snapshot(state=state), port=0) as endpoint:
        assert asked(endpoint, "/ready") == (status, f"{state}\n")


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_than_get_and_head_are_refused(path, method, snapshot):
    """A probe that asks wrongly must not pass for a healthy instance."""
    with serve(snapshot, port=0) as endpoint:
        request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}{path}", method=method)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=LONG)
        with refused.value as error:
            answer = (error.code, error.headers["Allow"], error.read().decode())
        assert answer == (405, "GET, HEAD", f"{path} is only read: GET or HEAD\n")


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
def test_head_is_answered_without_a_body(path, snapshot):
    with serve(snapshot, port=0) as endpoint:
        request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}{path}", method="HEAD")
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            assert (answer.status, answer.read()) == (200, b"")
            assert int(answer.headers["Content-Length"]) > 0


def test_other_pages_are_not_there(snapshot):
    with serve(snapshot, port=0) as endpoint:
        assert asked(endpoint, "/page.py") == (
            404,
            "there are /, /api/instance, /api/group, /events, /metrics, /health and /ready\n",
        )


def test_a_snapshot_that_fails_is_one_answer_only(snapshot):
    def read():
        if failing:
            raise RuntimeError("oops")
        return snapshot()

    failing = True
    with serve(read, port=0) as endpoint:
        for page in ("/health", "/ready"):
            assert asked(endpoint, page) == (503, "the state cannot be read: RuntimeError\n")
        assert asked(endpoint, "/metrics")[0] == 500
        failing = False
        assert asked(endpoint, "/health")[0] == 200


def test_a_port_in_use_is_named_with_the_remedy(snapshot):
    with (
        serve(snapshot, port=0) as first,
        pytest.raises(ConfigException, match="metrics.port") as caught,
    ):
        serve(snapshot, port=first.port)
    assert f"has the value {first.port}, but 127.0.0.1:{first.port} cannot be listened at" in str(caught.value)
    assert "choose another" in str(caught.value)


def test_a_host_that_nobody_has_is_named(snapshot):
    with pytest.raises(ConfigException, match=r"'metrics.host' has the value 'a..b'.*name an address of this machine"):
        serve(snapshot, port=0, host="a..b")
    with pytest.raises(ConfigException, match=r"'metrics.host' has the value 'no such host'"):
        serve(snapshot, port=0, host="no such host")


def test_closing_leaves_no_thread_no_connection_and_a_free_port(snapshot, wait_until):
    before = set(threading.enumerate())
    port = own_port()
    endpoint = serve(snapshot, port=port)
    with socket.create_connection(("127.0.0.1", port)) as silent:
        # It is answered beside one that says nothing.
        assert asked(endpoint, "/health")[0] == 200
        endpoint.close()
        silent.settimeout(LONG)
        assert silent.recv(1) == b""
    endpoint.close()
    wait_until(lambda: set(threading.enumerate()) <= before, "threads are left")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    serve(snapshot, port=port).close()


def test_a_client_that_goes_away_in_the_middle_is_no_trouble(snapshot, capfd):
    with serve(snapshot, port=0) as endpoint:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
                client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert asked(endpoint, "/health")[0] == 200
    assert capfd.readouterr().err == ""
