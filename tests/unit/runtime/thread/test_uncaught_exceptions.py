"""What handlers may answer about a thread's death, and what others answers come to."""

import pytest

from sparkrelay.errors import ApplicationShutdownException, StreamsException
from sparkrelay.runtime.thread.uncaught_exceptions import StreamThreadExceptionResponse, ask_handler

REPLACE, CLIENT, APPLICATION = StreamThreadExceptionResponse


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        (REPLACE, REPLACE),
        ("replace-thread", REPLACE),
        (CLIENT, CLIENT),
        ("shutdown-client", CLIENT),
        (APPLICATION, APPLICATION),
        ("shutdown-application", APPLICATION),
        (None, CLIENT),
    ],
)
def test_a_handler_decides(answer, meant, caplog):
    error = StreamsException("a thread died")
    asked = []
    assert ask_handler(lambda cause: asked.append(cause) or answer, error) is meant
    assert asked == [error]
    assert not caplog.text


@pytest.mark.parametrize("answer", ["replace", 1, True, object, ["replace-thread"]])
def test_nonsense_is_named_and_ends_the_instance(answer, caplog):
    assert ask_handler(lambda _: answer, ValueError()) is CLIENT
    assert repr(answer) in caplog.text
    assert "'replace-thread', 'shutdown-client', 'shutdown-application' or None" in caplog.text


def test_a_handler_that_fails_does_not_decide(caplog):
    def handler(error):
        raise ZeroDivisionError

    assert ask_handler(handler, ValueError()) is CLIENT
    assert "ZeroDivisionError" in caplog.text


def test_without_a_handler_the_instance_ends():
    assert ask_handler(None, ValueError()) is CLIENT


def test_nobody_goes_on_when_the_application_ends():
    assert ask_handler(lambda _: REPLACE, ApplicationShutdownException("all")) is CLIENT


def test_a_handler_that_exits_ends_the_instance(caplog):
    def handler(error):
        raise SystemExit(1)

    assert ask_handler(handler, ValueError()) is CLIENT
    assert "SystemExit" in caplog.text
