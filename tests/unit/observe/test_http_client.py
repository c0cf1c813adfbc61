"""What a server may answer to us, whole or in pieces, and what is no answer."""

import http.client
import threading

import pytest
from hypothesis import given, settings, strategies as st
from tests.speaker import speaker
from tests.waiting import LONG, within

from sparkrelay.observe import http_client
from sparkrelay.observe.http_client import HttpConnection
from sparkrelay.observe.http_server import HttpServer

OK = b"HTTP/1.1 200 OK\r\n"
LONGEST = 100


def asked(*says, path="/", longest=LONGEST, **headers):
    with speaker(*says) as address:
        connection = HttpConnection("127.0.0.1", int(address.rpartition(":")[2]), 5.0)
        try:
            return connection.get(path, headers, longest=longest)
        finally:
            connection.close()


def summed(answer):
    return answer.status, answer.body, answer.stays


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (OK + b"Content-Length: 2\r\n\r\nab", (200, b"ab", True)),
        (OK + b"Content-Length: 0\r\n\r\n", (200, b"", True)),
        (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nab", (200, b"ab", False)),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n", (200, b"ab", True)),
        (OK + b"\r\nab", (200, b"ab", False)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nab", (200, b"ab", True)),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", (503, b"no", True)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", (200, b"ab", False)),
        # What comes behind an answer is none to the next question.
        (OK + b"Content-Length: 2\r\n\r\nab" + OK + b"Content-Length: 1\r\n\r\nc", (200, b"ab", False)),
        (OK + b"Content-Length: 2\r\n\r\nabc", (200, b"ab", False)),
        (OK + b"Content-Length: 999999\r\n\r\n" + b"x" * 5000, (200, b"x" * (LONGEST + 1), False)),
        (OK + b"\r\n" + b"x" * 5000, (200, b"x" * (LONGEST + 1), False)),
    ],
)
def test_an_answer_is_read_to_its_end(says, expected):
    assert summed(asked(says)) == expected


@pytest.mark.parametrize(
    ("says", "error"),
    [
        (b"", ConnectionError),
        (OK, ConnectionError),
        (OK + b"Content-Length: 9\r\n\r\nab", ConnectionError),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nab", ConnectionError),
        (b"SSH-2.0-OpenSSH\r\n", ValueError),
        (OK + b"Content-Length: x\r\n\r\n", ValueError),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", ValueError),
        (OK + b"X: " + b"y" * (http_client._LONGEST_HEAD + 70_000), ValueError),
        (OK + b"X: y\r\n" * 60_000, ValueError),
    ],
)
def test_what_is_no_answer_is_refused(says, error):
    with pytest.raises(error):
        asked(says)


@pytest.mark.parametrize("more", [{"path": "/a b\r\nX: y"}, {"Accept": "a\nX: y"}])
def test_a_question_has_no_line_breaks_of_others(more):
    with pytest.raises(ValueError, match="line break"):
        asked(OK, **more)


@settings(deadline=None, max_examples=40)
@given(cuts=st.lists(st.integers(0, 60), max_size=6))
def test_it_does_not_matter_in_what_pieces_an_answer_comes(cuts):
    whole = OK + b"X-Header: value\r\nContent-Length: 3\r\n\r\nabc"
    reading = http_client._Reading(LONGEST)
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(whole)], strict=True):
        if whole[start:stop]:
            reading.feed(whole[start:stop])
    assert (reading.whole, summed(reading.answer)) == (True, (200, b"abc", True))
    assert reading.answer.headers == {"x-header": "value", "content-length": "3"}


SILENT = {"again": (b"", 0.05)}


@pytest.mark.parametrize(
    ("says", "again"),
    [
        ([], (b"", 0.05)),
        ([OK], (b"X: y\r\n", 0.01)),
        ([OK + b"Content-Length: 9999\r\n\r\n"], (b" ", 0.01)),
    ],
)
def test_a_whole_answer_has_a_limit_of_time_however_short_each_wait_is(says, again):
    with speaker(*says, again=again) as address:
        connection = HttpConnection("127.0.0.1", int(address.rpartition(":")[2]), 0.2)
        with within(), pytest.raises(TimeoutError, match="no whole answer within 0.2 s"):
            connection.get("/", {}, longest=99_999)
        connection.close()


def test_one_with_less_time_is_not_kept_waiting_by_one_with_more():
    with speaker(**SILENT) as slow, speaker(**SILENT) as fast:
        patient, hasty = (
            HttpConnection("127.0.0.1", int(to.rpartition(":")[2]), s) for to, s in ((slow, 600), (fast, 0.2))
        )
        failed = []

        def wait_long():
            try:
                patient.get("/", {}, longest=LONGEST)
            except OSError as error:
                failed.append(type(error))

        waiting = threading.Thread(target=wait_long, daemon=True)
        waiting.start()
        with within(), pytest.raises(TimeoutError, match="within 0.2 s"):
            hasty.get("/", {}, longest=LONGEST)
        assert not failed
        hasty.close()
    waiting.join(LONG)
    patient.close()
    # The other side has closed: that is no lack of time.
    assert failed == [ConnectionResetError]


def test_it_asks_as_the_standard_library_s_client_does():
    asked_for = []

    def application(environ, start_response):
        names = ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_HOST", "HTTP_ACCEPT", "SERVER_PROTOCOL")
        asked_for.append({name: environ.get(name) for name in names})
        start_response("200 OK", [])
        return [b"ab"]

    with HttpServer(application, host="127.0.0.1", port=0, name="other") as server:
        mine = HttpConnection("127.0.0.1", server.port, 5.0)
        for _ in range(2):
            assert summed(mine.get("/a%20b?c=d", {"Accept": "x"}, longest=2)) == (200, b"ab", True)
        mine.close()
        theirs = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONG)
        theirs.request("GET", "/a%20b?c=d", headers={"Accept": "x"})
        assert theirs.getresponse().read() == b"ab"
        theirs.close()
    assert asked_for[0] == asked_for[1] == asked_for[2]
