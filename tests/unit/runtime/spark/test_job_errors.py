"""One paragraph of what Spark says in a hundred lines."""

import pytest
from pyspark.errors import PySparkException

from sparkrelay.client.transaction_calls import ProducerIdentity
from sparkrelay.runtime.contract.commands import BatchCommand, TaskCommand
from sparkrelay.runtime.spark import job_errors
from sparkrelay.runtime.spark.job_errors import read_input, read_job_error
from sparkrelay.types import TaskId, TopicPartition


def command(*shares):
    identity = ProducerIdentity("id", 1, 0, 2, 60_000)

    def task(partition):
        ranges = {TopicPartition("orders", partition): (10, 20)}
        return TaskCommand(TaskId(0, partition), 1, 0, 5, None, identity, ranges, {})

    return BatchCommand(tuple(tuple(map(task, partitions)) for partitions in shares), {})


def test_input_of_failed_partitions_is_named():
    batch = command([0, 2], [1])
    assert read_input(batch, (1,)) == "task 0_1 (topic orders, partition 1, offsets 10 to 19)"
    assert read_input(batch, ()) == ""
    both = read_input(batch, (0,))
    assert both.startswith("task 0_0 (topic orders, partition 0, offsets 10 to 19), task 0_2 (")


def test_what_has_no_input_is_not_named():
    identity = ProducerIdentity("id", 1, 0, 2, 60_000)
    ranges = {TopicPartition("orders", 3): (10, 20), TopicPartition("users", 3): (7, 7)}
    tasks = [
        TaskCommand(TaskId(0, 3), 1, 0, 5, None, identity, ranges, {}),
        TaskCommand(TaskId(0, 4), 1, 0, 5, None, identity, {TopicPartition("orders", 4): (0, 0)}, {}),
    ]
    batch = BatchCommand((tuple(tasks),), {})
    assert read_input(batch, (0,)) == "task 0_3 (topic orders, partition 3, offsets 10 to 19)"


def test_partitions_of_later_legs_are_those_of_the_same_tasks():
    assert read_input(command([0], [1]), (3, 5)) == read_input(command([0], [1]), (1,))


def test_many_tasks_are_counted():
    assert read_input(command(range(9)), (0,)).endswith("offsets 10 to 19) and 6 more")


CHAINED = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "steps.py", line 3, in first
    int(text)
ValueError: bad

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "steps.py", line 5, in second
    raise KeyError(text)
  File "/x/site-packages/pandas/core.py", line 99, in inner
    raise KeyError(text)
KeyError: 'two
lines'
 SQLSTATE: 38000
"""


def test_of_a_chain_the_last_exception_counts_and_of_its_frames_the_users_last():
    found = read_job_error(PySparkException(CHAINED))
    assert found.cause == "KeyError: 'two lines' (steps.py:5, in second)"
    assert found.remedy.startswith("Fix that step")


@pytest.mark.parametrize("text", ["Traceback (most recent call last):", "Traceback (most recent call last):\n  File"])
def test_a_traceback_that_is_cut_off_is_read_as_text(text):
    assert read_job_error(PySparkException(text)).cause.startswith("Traceback")


def test_what_spark_says_itself_is_one_line():
    said = "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. SQLSTATE: 22012\n== SQL ==\n1 / 0\n^^^^^"
    assert read_job_error(PySparkException(said)).cause == "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`."


def test_a_message_that_quotes_a_long_record_is_cut():
    assert len(read_job_error(PySparkException("x" * 100_000)).cause) < 700


DEAD = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0: \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:1136)
Caused by: {cause}
	at java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)

Driver stacktrace:"""


@pytest.mark.parametrize(
    "cause",
    ["java.io.EOFException", "java.net.SocketException: Connection reset", "java.io.IOException: Broken pipe"],
)
def test_the_end_of_a_connection_to_a_python_worker_is_the_workers_death(cause):
    found = read_job_error(PySparkException(DEAD.format(cause=cause)))
    assert found.cause == "a Python worker died: a signal or os._exit() ended it"
    assert found.remedy.startswith("Possible causes of a signal: a damaged state file (SIGBUS")
    assert "out-of-memory killer" in found.remedy


def test_a_signal_that_python_has_seen_is_named():
    crashed = DEAD.format(cause="java.io.EOFException").replace("Consider", "Fatal Python error: Segmentation fault\n")
    assert read_job_error(PySparkException(crashed)).cause == "a Python worker died: Segmentation fault"


@pytest.mark.parametrize(
    "text",
    [
        # The runner takes the error of a step in front of a worker's for the worker's end.
        DEAD.format(cause="java.lang.ArithmeticException: division by zero"),
        # A database's connection, in a DataFrame of the user's.
        "org.postgresql.util.PSQLException\nCaused by: java.net.SocketException: Connection reset",
    ],
)
def test_other_ends_are_not_taken_for_a_workers_death(text):
    assert "worker died" not in read_job_error(PySparkException(text)).cause


def traceback(*frames, raised="ValueError: no"):
    lines = "\n".join(f'  File "{file}", line 3, in {function}' for file, function in frames)
    return f"Traceback (most recent call last):\n{lines}\n{raised}\n"


WORKER = "/env/site-packages/pyspark/worker.py"


@pytest.mark.parametrize(
    ("frames", "raised"),
    [
        ([(WORKER, "process"), ("/home/me/pipeline.py", "tenth")], "ValueError"),
        (
            [(WORKER, "process"), ("/home/me/pipeline.py", "tenth"), ("/env/site-packages/pandas/core.py", "f")],
            "ValueError",
        ),
        # The function is loaded; what it needs is not there, whatever the record.
        ([(WORKER, "read_udfs"), (WORKER, "read_command"), ("/home/me/helpers.py", "<module>")], ""),
        ([(WORKER, "process"), ("<frozen importlib._bootstrap>", "_find_and_load")], ""),
        # Our own step, and Spark's worker.
        ([(WORKER, "process"), (job_errors.__file__.replace("spark/job_errors", "worker/fetch"), "fetch_leg")], ""),
        ([(WORKER, "process")], ""),
    ],
)
def test_what_was_raised_over_rows_is_named(frames, raised):
    assert read_job_error(PySparkException(traceback(*frames))).raised == raised


def test_conditions_that_rows_bring_about_are_named():
    class Raised(PySparkException):
        def __init__(self, condition, state):
            super().__init__("text")
            self._of = condition, state

        def getCondition(self):
            return self._of[0]

        def getSqlState(self):
            return self._of[1]

        def getMessage(self):
            return "text"

        def getQueryContext(self):
            return []

    assert read_job_error(Raised("DIVIDE_BY_ZERO", "22012")).raised == "DIVIDE_BY_ZERO"
    assert read_job_error(Raised("USER_RAISED_EXCEPTION", "P0001")).raised == "USER_RAISED_EXCEPTION"
    assert not read_job_error(Raised("INTERNAL_ERROR", "XX000")).raised
