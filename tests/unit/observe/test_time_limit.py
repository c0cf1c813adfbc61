"""How long talking to another process may take: several at a time, in any order of their ends."""

import http.client
import threading

import pytest
from tests.speaker import speaker
from tests.waiting import LONG, wait_until, within

from sparkrelay.observe import time_limit as module
from sparkrelay.observe.time_limit import time_limit

NAME = "sparkrelay-time-limits"
SILENT = {"again": (b"", 0.05)}


def to(address):
    host, port = address.rsplit(":", 1)
    return http.client.HTTPConnection(host, int(port), timeout=LONG)


def ask(connection, timeout_s):
    with time_limit(connection, timeout_s):
        connection.request("GET", "/")
        return connection.getresponse().read()


def test_one_with_less_time_is_not_kept_waiting_by_one_with_more():
    with speaker(**SILENT) as slow, speaker(**SILENT) as fast:
        patient, hasty = to(slow), to(fast)
        failed = []

        def wait_long():
            try:
                ask(patient, 600)
            except OSError as error:
                failed.append(type(error))
            except http.client.HTTPException as error:
                failed.append(type(error))

        waiting = threading.Thread(target=wait_long, daemon=True)
        waiting.start()
        wait_until(lambda: module._WATCH._all, "it is not under way")
        with within(), pytest.raises(TimeoutError, match="within 0.2 s"):
            ask(hasty, 0.2)
        assert not failed
        hasty.close()
    waiting.join(LONG)
    patient.close()
    # The other side has closed: that is no lack of time.
    assert failed == [http.client.RemoteDisconnected]


def test_what_goes_well_in_time_is_left_alone():
    with speaker(b"HTTP/1.0 200 OK\r\n\r\nhello") as address:
        connection = to(address)
        assert ask(connection, 600) == b"hello"
    assert not module._WATCH._all
    connection.close()


def test_another_error_stays_what_it_is():
    with speaker(**SILENT) as address, pytest.raises(ValueError, match="mine"), time_limit(to(address), 600):
        raise ValueError("mine")
    assert not module._WATCH._all


def test_the_thread_ends_when_nothing_is_under_way(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_IDLE_S", 0.1)
    watch = module._Watch()
    monkeypatch.setattr(module, "_WATCH", watch)
    for _ in range(2):
        with speaker(b"HTTP/1.0 200 OK\r\n\r\nhello") as address:
            connection = to(address)
            assert ask(connection, 600) == b"hello"
            connection.close()
        wait_until(lambda: watch._thread is None, "it waits for nothing")
