"""The live page without a browser: its files and headers, its JSON, its events, and that it only reads."""

import gzip
import http.client
import io
import json
import re
import socket
import threading
import urllib.request
import zlib

import pytest
from tests.waiting import LONG

from sparkrelay.observe import live_page
from sparkrelay.observe.details import InstanceDetails
from sparkrelay.observe.endpoint import serve

HOSTILE = "</script><img src=x onerror=alert(1)>"
FILES = ("/", "/page.css", "/page.js", "/views.js", "/elements.js", "/graph.js")


def ask(endpoint, path, *, method="GET", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=LONG)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def follow(endpoint, headers=""):
    client = socket.create_connection(("127.0.0.1", endpoint.port), timeout=LONG)
    client.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    return client


@pytest.fixture
def page(busy):
    details = InstanceDetails(config={"application.id": HOSTILE}, plan=["0_0", "0_9"], members={"p": ""})
    with serve(lambda: busy, port=0, details=lambda: details) as endpoint:
        yield endpoint


@pytest.mark.parametrize("path", FILES)
def test_its_files_may_run_and_load_nothing_else(page, path):
    status, headers, body = ask(page, path)
    assert status == 200
    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers
    text = body.decode()
    addresses = set(re.findall(r"https?://[^\s\"')]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}, "it works offline"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)
    if path == "/":
        assert not re.search(r"<script(?![^>]*src=)|<style|\son[a-z]+=|\sstyle=", text), "the policy forbids it"


def test_the_group_is_json_whatever_names_there_are(page):
    status, headers, body = ask(page, "/api/group")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    group = json.loads(body)
    (one,) = group["instances"]
    assert one["own"]
    assert one["view"]["config"] == {"application.id": HOSTILE}
    assert [(task["task"], task["role"], task["lag"]) for task in one["view"]["tasks"]][:2] == [
        ("0_0", "active", None),
        ("0_1", "active", None),
    ]
    assert one["view"]["records"] == {"orders": 90, "again": 9}
    assert group["missing"] == ["0_9"]
    assert json.loads(ask(page, "/api/instance")[2])["state"] == "RUNNING"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
def test_it_only_reads(page, method):
    assert ask(page, "/api/group", method=method)[0] == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9404", 200),
        ("app.localhost", 200),
        ("127.0.0.1:9404", 200),
        ("[::1]:9404", 200),
        ("10.0.0.7", 200),
        ("attacker.example:9404", 403),
        ("", 403),
    ],
)
def test_a_name_that_was_made_to_mean_this_machine_is_refused(page, host, status):
    for path in ("/", "/api/group", "/api/instance", "/metrics", "/health", "/ready", "/nowhere"):
        assert ask(page, path, headers={"Host": host})[0] == (404 if path == "/nowhere" and status == 200 else status)


def test_who_names_no_host_is_no_browser(page):
    with socket.create_connection(("127.0.0.1", page.port), timeout=LONG) as client, client.makefile("rb") as lines:
        client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert b" 200 " in lines.readline()


def test_events_have_the_group(page):
    with follow(page) as client, client.makefile("rb") as lines:
        assert b"200" in lines.readline()
        for line in lines:
            if line.startswith(b"data: "):
                assert json.loads(line[6:])["application"] == "app"
                break


def test_events_are_compressed_for_whoever_can_read_that(page):
    with follow(page, "Accept-Encoding: gzip\r\n") as client, client.makefile("rb") as answer:
        head = b"".join(iter(answer.readline, b"\r\n"))
        assert b"Content-Encoding: gzip" in head
        reader, text = zlib.decompressobj(wbits=31), b""
        while b'"application":"app"' not in text:
            text += reader.decompress(answer.read1(65_536))


def test_followers_are_bounded_and_make_room_as_they_go(page, wait_until, monkeypatch):
    clients = []
    for _ in range(live_page._MOST_FOLLOWERS):
        clients.append(follow(page))
        assert b"200" in clients[-1].recv(100)
    status, headers, body = ask(page, "/events")
    assert (status, headers["Retry-After"]) == (503, "10")
    assert b"browsers follow already" in body
    assert ask(page, "/health")[0] == 200, "who decides about a restart is answered all the same"
    for client in clients:
        client.close()

    def again():
        with follow(page) as client:
            return b"200" in client.recv(100)

    wait_until(again, "nobody made room")


def test_closing_ends_events_and_threads(busy, wait_until):
    before = set(threading.enumerate())
    endpoint = serve(lambda: busy, port=0)
    with follow(endpoint) as client:
        assert b"200" in client.recv(100)
        endpoint.close()
        while client.recv(65_536):
            pass
    wait_until(lambda: set(threading.enumerate()) <= before, "threads are left")


def test_a_snapshot_that_fails_ends_one_stream_only(busy, wait_until):
    failing = False

    def read():
        if failing:
            raise RuntimeError("oops")
        return busy

    with serve(read, port=0) as endpoint:
        failing = True
        with follow(endpoint) as client:
            while client.recv(65_536):
                pass
        assert ask(endpoint, "/api/instance")[0] == 500
        failing = False
        assert ask(endpoint, "/api/group")[0] == 200


def test_an_instance_that_has_failed_says_why(snapshot):
    with serve(lambda: snapshot(state="ERROR", trouble=HOSTILE), port=0) as endpoint:
        view = json.loads(ask(endpoint, "/api/group")[2])["instances"][0]["view"]
    assert (view["state"], view["alive"], view["trouble"]) == ("ERROR", False, HOSTILE)


def test_the_files_are_whole_for_a_client_that_asks_for_them_zipped(page):
    request = urllib.request.Request(f"http://127.0.0.1:{page.port}/", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=LONG) as answer:
        body = answer.read()
        if answer.headers.get("Content-Encoding") == "gzip":
            body = gzip.GzipFile(fileobj=io.BytesIO(body)).read()
    assert b"</html>" in body
