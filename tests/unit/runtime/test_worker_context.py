from sparkrelay.errors import StoreCorruptedException, TimeoutException
from sparkrelay.runtime.worker.context import WorkerFailure, find_failure
from sparkrelay.types import TaskId


def test_an_error_survives_sparks_error_text():
    text = f"Job aborted due to stage failure: ... {WorkerFailure(StoreCorruptedException('torn'), TaskId(1, 3))}\n\tat"
    error, task = find_failure(text)
    assert isinstance(error, StoreCorruptedException)
    assert (str(error), task) == ("torn", TaskId(1, 3))


def test_a_failure_of_the_whole_job_names_no_task():
    error, task = find_failure(str(WorkerFailure(TimeoutException("no answer"))))
    assert isinstance(error, TimeoutException)
    assert task is None


def test_text_of_others_is_not_ours():
    assert find_failure("ZeroDivisionError: division by zero") is None
