"""The error of a failed Spark job in one paragraph: task and offsets, cause and place, remedy."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, QueryContextType

from sparkrelay.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext

    from sparkrelay.runtime.contract.commands import BatchCommand, TaskCommand

log = logging.getLogger(__name__)

#: Spark fills its status store on another thread.
_STATUS_MS: Final = 2000
_MOST_TASKS: Final = 1000
_MOST_NAMED: Final = 3
#: Messages quote records, which may be long.
_LONGEST_CAUSE: Final = 600

#: The directory of this package.
_OURS: Final = f"{Path(__file__).parents[2]}{os.sep}"
_TRACEBACK: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_BY_PYTHON: Final = "Fix that step, or filter out such rows before it. The traceback is in the log at DEBUG."

#: The JVM notices the death of a Python worker by the closed connection. Spark's daemon ignores SIGCHLD, so the signal
#: is unknown unless Python itself could still report it.
_CONNECTION_ENDED: Final = re.compile(
    r"java\.io\.EOFException\b|java\.net\.SocketException: .*|java\.io\.IOException: (Connection reset|Broken pipe).*"
)
_OF_PYTHON_RUNNER: Final = ("Python worker exited unexpectedly", "org.apache.spark.api.python.")
_FATAL: Final = re.compile(r"Fatal Python error: ([^\n]+)")
#: The driver cannot read the fault note that a worker leaves beside its state: on a cluster it is on another host.
_WORKER_DIED: Final = (
    "Possible causes of a signal: a damaged state file (SIGBUS or SIGSEGV: the next attempt then reports and rebuilds "
    "the damaged state), an error in native code (SIGSEGV: spark.python.worker.faulthandler.enabled=true shows "
    "where), or the kernel's out-of-memory killer (SIGKILL: see dmesg; give the executor more memory, or lower "
    "max.batch.records)"
)


@dataclass(frozen=True, slots=True)
class JobError:
    """Spark's report of a failed job.

    Attributes:
        text: all of it, with the stacks.
        cause: the cause and its place in the user's code, on one line.
        remedy: what to do; empty if the cause includes it.
        raised: class of the error that the user's code raised over its rows, or Spark's name for it; empty for other
            failures.
    """

    text: str
    cause: str
    remedy: str = ""
    raised: str = ""


def read_job_error(error: PySparkException | Py4JJavaError) -> JobError:
    """Read py4j's error for a failed job, translated by PySpark or not."""
    if isinstance(error, Py4JJavaError):
        text = _causes(error)
        return _of_python(text) or _of_dead_worker(text) or JobError(text, _one_line(_innermost(text)))
    text = str(error)
    message = error.getMessage() if error.getCondition() else text
    cause = _one_line(message.partition("\n")[0]) + _call_site(error)
    dead = _of_dead_worker(text) if error.getCondition() is None else None
    return _of_python(message, text) or dead or JobError(text, cause, raised=_condition_of_rows(error))


def _of_python(message: str, text: str | None = None) -> JobError | None:
    """Read the last traceback of a message, if any; in a chain of exceptions, that is the raised one."""
    _, found, trace = message.rpartition(_TRACEBACK)
    if not found:
        return None
    lines = trace.splitlines()
    begins = next((i for i, line in enumerate(lines) if line and not line.startswith(" ")), None)
    if begins is None:
        return None
    raised = " ".join(line.strip() for line in lines[begins:] if not line.startswith("\tat "))
    frames = [match.groups() for match in _FRAME.finditer("\n".join(lines[:begins]))]
    own = [frame for frame in frames if "site-packages" not in frame[0]] or frames
    where = f" ({own[-1][0]}:{own[-1][1]}, in {own[-1][2]})" if own else ""
    class_ = raised.partition(":")[0].strip() if _by_rows(frames) else ""
    return JobError(text or message, _one_line(raised) + where, _BY_PYTHON, class_)


def _of_dead_worker(text: str) -> JobError | None:
    """Return the error if a Python worker died, which Spark reports as a closed connection; else None."""
    if not any(words in text for words in _OF_PYTHON_RUNNER):
        return None
    fatal = _FATAL.search(text)
    if fatal is None and not any(_CONNECTION_ENDED.match(line) for line in _started_by(text)):
        return None
    how = fatal[1].strip() if fatal else "a signal or os._exit() ended it"
    return JobError(text, _one_line(f"a Python worker died: {how}"), _WORKER_DIED)


def _started_by(text: str) -> list[str]:
    """Return the innermost causes of a Java error: the last ``Caused by``, and the last line."""
    causes = [line.removeprefix("Caused by: ") for line in text.splitlines() if line.startswith("Caused by: ")]
    return [*causes[-1:], _innermost(text)]


def _by_rows(frames: Sequence[tuple[str, ...]]) -> bool:
    """Return whether a traceback leads into user code that processes rows, not one that is being loaded."""
    loading = any(function in {"read_command", "read_udfs"} for *_, function in frames)
    own = [file for file, *_ in frames if "site-packages" not in file and not file.startswith("<frozen")]
    return not loading and bool(own) and not own[-1].startswith(_OURS)


def _condition_of_rows(error: PySparkException) -> str:
    """Return the name of an error condition caused by rows, such as DIVIDE_BY_ZERO; else an empty string."""
    state = error.getSqlState() or ""
    # "Data exception", "External routine exception", and raise_error().
    return (error.getCondition() or "") if state.startswith(("22", "39")) or state == "P0001" else ""


def _call_site(error: PySparkException) -> str:
    for context in error.getQueryContext():
        if context.contextType() == QueryContextType.DataFrame:
            return f" ({context.callSite()}, {context.fragment()})"
        return f" (in the expression {context.fragment()!r})"
    return ""


def _one_line(text: str) -> str:
    line = printable(_SQLSTATE.sub("", " ".join(text.split())))
    return line if len(line) <= _LONGEST_CAUSE else f"{line[:_LONGEST_CAUSE]}..."


def _causes(error: Py4JJavaError) -> str:
    texts = []
    cause = error.java_exception
    while cause is not None:
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(texts) or str(error)


def _innermost(causes: str) -> str:
    """Return the last line, which is the root cause."""
    return next((line for line in reversed(causes.splitlines()) if line.strip()), "")


def failed_partitions(context: SparkContext, group: str) -> tuple[int, ...]:
    """Return the failed partitions of a group's latest job, as far as Spark's status store knows."""
    java: Any = context._jsc.sc()
    try:
        java.listenerBus().waitUntilEmpty(_STATUS_MS)
        tracker = context.statusTracker()
        latest = tracker.getJobInfo(max(tracker.getJobIdsForGroup(group)))
        stages = [] if latest is None else list(latest.stageIds)
        tasks = [java.statusStore().taskList(stage, 0, _MOST_TASKS) for stage in stages]
        ended = [task for found in tasks for task in map(found.apply, range(found.size()))]
        failed = {task.index() for task in ended if str(task.status()) == "FAILED"}
    except (Py4JError, ValueError) as error:
        # The error is known, only not its input.
        log.debug("the failed partitions of %s are unknown: %s", group, error)
        return ()
    return tuple(sorted(failed))


def read_input(command: BatchCommand, partitions: tuple[int, ...]) -> str:
    """Describe the input of Spark partitions of a batch: tasks, topics and offsets."""
    shares = [command.spark_partitions[partition % len(command.spark_partitions)] for partition in partitions]
    tasks = {task.task: task for share in shares for task in share if _ranges(task)}
    named = [f"task {id_} ({_ranges(task)})" for id_, task in sorted(tasks.items())[:_MOST_NAMED]]
    return ", ".join(named) + (f" and {len(tasks) - _MOST_NAMED} more" if len(tasks) > _MOST_NAMED else "")


def _ranges(task: TaskCommand) -> str:
    return ", ".join(
        f"topic {p.topic}, partition {p.partition}, offsets {start} to {end - 1}"
        for p, (start, end) in sorted(task.ranges.items())
        if start < end
    )
