"""Logging of a script, set up by one call."""

import io
import json
import logging

import pytest

from sparkrelay.errors import ConfigException
from sparkrelay.observe.logs import AREAS, WORKERS_VARIABLE, configure_logging, configure_worker_logging


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Give loggers back what they had."""
    monkeypatch.setenv(WORKERS_VARIABLE, "")
    root = logging.getLogger()
    names = [None, "sparkrelay.mine", "sparkrelay.runtime.batch.batch_runner", *(n for a in AREAS.values() for n in a)]
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def lines(stream):
    return stream.getvalue().splitlines()


def test_a_line_of_text_has_its_time():
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("sparkrelay.mine").info("one %s", "word")
    (line,) = lines(stream)
    date, clock, rest = line.split(" ", 2)
    assert (len(date), len(clock)) == (len("2026-01-01"), len("12:00:00,123"))
    assert rest == "INFO sparkrelay.mine: one word"


def test_json_is_one_object_a_line_whatever_is_in_it():
    stream = io.StringIO()
    configure_logging(as_json=True, stream=stream)
    log = logging.getLogger("sparkrelay.mine")
    log.warning("two\nlines, %s", "grün", extra={"task": "0_1", "level": 7, "where": {1, 2}.__class__})
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("it failed")
    first, second = map(json.loads, lines(stream))
    assert first["message"] == "two\nlines, grün"
    assert first["level"] == "WARNING"
    assert first["logger"] == "sparkrelay.mine"
    assert first["thread"] == "MainThread"
    assert first["time"].endswith("Z")
    assert len(first["time"]) == len("2026-01-01T12:00:00.123Z")
    assert (first["task"], first["extra_level"], first["where"]) == ("0_1", 7, "<class 'set'>")
    assert "exception" not in first
    assert "ZeroDivisionError: division by zero" in second["exception"]


def test_levels_are_set_by_area_and_by_name():
    stream = io.StringIO()
    one = "sparkrelay.runtime.batch.batch_runner"
    configure_logging(level="WARNING", levels={one: "ERROR", "batch": "DEBUG"}, stream=stream)
    logging.getLogger("sparkrelay.runtime.batch.batch_thread").debug("shown")
    logging.getLogger(one).warning("not shown")
    logging.getLogger("sparkrelay.mine").info("not shown")
    assert [line.split(": ")[1] for line in lines(stream)] == ["shown"]


def test_what_pyspark_logs_of_its_connections_is_left_out_unless_it_is_wanted():
    configure_logging(level="DEBUG", stream=io.StringIO())
    assert logging.getLogger("py4j").level == logging.WARNING
    configure_logging(level="DEBUG", levels={"spark": "INFO"}, stream=io.StringIO())
    assert logging.getLogger("py4j").level == logging.INFO


def test_a_second_call_takes_the_place_of_the_first():
    first, second = io.StringIO(), io.StringIO()
    configure_logging(levels={"batch": "DEBUG"}, stream=first)
    configure_logging(stream=second)
    logging.getLogger("sparkrelay.runtime.batch.x").debug("not shown")
    logging.getLogger("sparkrelay.mine").info("once")
    assert lines(first) == []
    assert len(lines(second)) == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"level": "LOUD"}, "level='LOUD' is not a level: use one of DEBUG"),
        ({"levels": {"batch": "x"}}, r"levels\['batch'\]='x' is not a level"),
        ({"levels": {"bacth": "INFO"}}, "'bacth' is neither an area .* did you mean 'batch'"),
    ],
)
def test_what_is_misspelt_is_refused(settings, words):
    with pytest.raises(ConfigException, match=words):
        configure_logging(**settings)


def test_workers_log_in_the_same_form(capsys):
    import os

    configure_logging(as_json=True, levels={"workers": "INFO"}, stream=io.StringIO())
    given = {WORKERS_VARIABLE: os.environ[WORKERS_VARIABLE]}
    root = logging.getLogger()
    before = set(root.handlers)
    configure_worker_logging(given)
    (handler,) = set(root.handlers) - before
    record = logging.makeLogRecord({"msg": "skipped", "name": "sparkrelay.runtime.worker.fetch"})
    assert json.loads(handler.format(record))["message"] == "skipped"
    assert logging.getLogger("sparkrelay.runtime.worker").level == logging.INFO


@pytest.mark.parametrize("given", ["", "{", "[]", "{}", '{"as_json": 1, "levels": {"a": "x"}}', "7"])
def test_what_workers_cannot_read_changes_nothing(given):
    before = logging.getLogger().handlers[:]
    configure_worker_logging({WORKERS_VARIABLE: given})
    configure_worker_logging({})
    assert logging.getLogger().handlers == before
