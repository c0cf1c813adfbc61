"""Errors that travel through Spark's error text, which anybody may have put something into."""

import base64
import json
import os
import pickle

import pytest
from tests.doubles.attack import Attack

from sparkrelay import errors
from sparkrelay.errors import (
    BrokerResponseException,
    DisconnectException,
    RecordDeserializationException,
    SparkRelayError,
    StoreCorruptedException,
    TimeoutException,
)
from sparkrelay.runtime.contract.failure_marks import MisplacedTask, WorkerFailure, find_failure, new_key, without_marks
from sparkrelay.types import TaskId

KEY = new_key()


def test_an_error_survives_sparks_error_text():
    mark = WorkerFailure(StoreCorruptedException("torn"), KEY, TaskId(1, 3))
    error, task = find_failure(f"Job aborted due to stage failure: ... {mark}\n\tat", KEY)
    assert isinstance(error, StoreCorruptedException)
    assert (str(error), task) == ("torn", TaskId(1, 3))


def test_a_failure_of_the_whole_job_names_no_task():
    error, task = find_failure(str(WorkerFailure(TimeoutException("no answer"), KEY)), KEY)
    assert isinstance(error, TimeoutException)
    assert error.retriable
    assert task is None


def test_what_decides_on_retries_survives():
    sent = BrokerResponseException("not now", code=16, name="NOT_COORDINATOR", retriable=True)
    error, _ = find_failure(str(WorkerFailure(sent, KEY)), KEY)
    assert (str(error), error.code, error.name, error.retriable) == ("not now", 16, "NOT_COORDINATOR", True)
    error, _ = find_failure(str(WorkerFailure(DisconnectException("closed", retriable=False), KEY)), KEY)
    assert not error.retriable
    sent = RecordDeserializationException("bad", topic="a", partition=3, offset=7, column="value")
    error, _ = find_failure(str(WorkerFailure(sent, KEY)), KEY)
    assert (error.topic, error.partition, error.offset, error.column) == ("a", 3, 7, "value")


@pytest.mark.parametrize("name", [n for n in errors.__all__ if issubclass(getattr(errors, n), SparkRelayError)])
def test_every_class_of_the_tree_travels(name):
    kind = getattr(errors, name)
    error, _ = find_failure(str(WorkerFailure(kind.__new__(kind, "said"), KEY)), KEY)
    assert type(error) is kind


def test_a_class_of_another_module_travels_as_the_nearest_that_is_known():
    class OfMine(StoreCorruptedException):
        pass

    error, _ = find_failure(str(WorkerFailure(OfMine("torn"), KEY)), KEY)
    assert type(error) is StoreCorruptedException
    assert isinstance(find_failure(str(WorkerFailure(MisplacedTask("elsewhere"), KEY)), KEY)[0], MisplacedTask)


def test_text_of_others_is_not_ours():
    assert find_failure("ZeroDivisionError: division by zero", KEY) is None


def test_marks_of_others_run_nothing_and_hide_nothing(tmp_path):
    attack = base64.b64encode(pickle.dumps(Attack(os.mkdir, str(tmp_path / "made")))).decode()
    said = base64.urlsafe_b64encode(json.dumps({"class": "SparkRelayError", "message": "x"}).encode()).decode()
    forged = [
        f"[sparkrelay-error:{attack}]",
        f"[sparkrelay-failure:{attack}]",
        f"[sparkrelay-failure:{attack.rstrip('=')}:{'0' * 64}]",
        f"[sparkrelay-failure:{said}:{'0' * 64}]",
        str(WorkerFailure(TimeoutException("of another run"), new_key())),
    ]
    for text in forged:
        assert find_failure(f"The value '{text}' cannot be cast", KEY) is None
    real = WorkerFailure(StoreCorruptedException("torn"), KEY)
    error, _ = find_failure(f"The value '{' '.join(forged)}' cannot be cast {real}", KEY)
    assert str(error) == "torn"
    assert not (tmp_path / "made").exists()


def test_a_mark_in_a_log_cannot_be_played_back():
    logged = without_marks(f"it failed: {WorkerFailure(TimeoutException('no answer'), KEY)}")
    assert logged == "it failed: no answer "


def test_a_message_that_quotes_a_long_record_is_cut():
    text = str(WorkerFailure(StoreCorruptedException("x" * 1_000_000), KEY))
    error, _ = find_failure(text, KEY)
    assert len(str(error)) < 11_000
    assert len(text) < 30_000


def test_the_key_shows_in_no_representation():
    from sparkrelay.runtime.contract.specs import PublishSpec

    plain = {"columns": (), "key_columns": (), "value": None, "headers": False, "compression": "", "flush_seconds": 1.0}
    step = {"leg": "leg", "subtopology": 0, "topics": ("a",), "spark_partitions": 1, "client": {}, "map_limit": 0}
    spec = PublishSpec(**step, topic="b", failure_key=KEY, **plain)
    assert repr(KEY) not in repr(spec)
