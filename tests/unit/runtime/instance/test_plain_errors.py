"""Errors of ours as a user's script sees them."""

import logging
import traceback

import pytest
from pyspark.errors import PySparkException

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.instance.plain_errors import plain_errors


def inside(cause):
    try:
        raise cause
    except type(cause) as error:
        raise TopologyException("pipeline.py:3: no column 'a'") from error


@plain_errors
def public(error=None, cause=PySparkException("a hundred lines of Java")):  # noqa: B008 - it is only raised
    """Document it."""
    if error is not None:
        raise error
    inside(cause)


def test_an_error_of_ours_is_the_callers_line_and_the_sentence(caplog):
    with (
        caplog.at_level(logging.DEBUG, "sparkrelay.runtime.instance.plain_errors"),
        pytest.raises(TopologyException) as caught,
    ):
        public()
    shown = "".join(traceback.format_exception(caught.value))
    assert "a hundred lines of Java" not in shown
    assert "in inside" not in shown
    assert shown.rstrip().endswith("TopologyException: pipeline.py:3: no column 'a'")
    assert "a hundred lines of Java" in caplog.text
    assert public.__doc__ == "Document it."


def test_a_users_own_error_stays_the_cause():
    cause = KeyError("of an assignor")
    with pytest.raises(TopologyException) as caught:
        public(cause=cause)
    assert caught.value.__cause__ is cause


def test_errors_of_others_keep_all_they_have():
    with pytest.raises(ZeroDivisionError) as caught:
        public(ZeroDivisionError())
    assert "public" in {frame.name for frame in traceback.extract_tb(caught.value.__traceback__)}


def test_ctrl_c_is_shown_without_what_we_were_doing():
    with pytest.raises(KeyboardInterrupt) as caught:
        public(KeyboardInterrupt())
    shown = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert shown[-1] == "plain"
    assert "public" not in shown
