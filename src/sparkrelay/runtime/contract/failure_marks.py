"""Errors of a worker that reach the driver through the text of a failed Spark job.

Errors come back in report rows wherever a step can answer with one. A step whose rows go to the user's steps cannot: it
raises, and the driver only gets Spark's text. That text also quotes records and exceptions of user code, so anybody who
may produce a record can put anything in it. Hence a mark in the text is data, never code, and is only trusted with a
signature: JSON with a class from ``errors`` and plain values, signed by HMAC-SHA256. The driver makes a key for each
process. The key travels only in the pickled plan, not in Spark's properties, where user code and the event log would
find it.

Refused: pickle, which runs the writer's code; a secret inside the mark, which the first error would publish.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from typing import Any, Final

from sparkrelay import errors
from sparkrelay.errors import SparkRelayError, StreamsException
from sparkrelay.printable import printable
from sparkrelay.types import TaskId

_MARK: Final = re.compile(r"\[sparkrelay-failure:([A-Za-z0-9_-]{1,200000}={0,2}):([0-9a-f]{64})\]")
_KEY_BYTES: Final = 32
#: Spark does not truncate error text, and a message that quotes a record may be as long as the record.
_LONGEST_MESSAGE: Final = 10_000


class MisplacedTask(StreamsException):
    """A Spark task refused to run: it is on the wrong executor, or is not the first attempt."""


class BatchTooLarge(StreamsException):
    """A Spark task reached its byte limit before it had read all of its records.

    Attributes:
        share: the part of its records that fits, in millionths.
    """

    def __init__(self, message: str, share: int) -> None:
        super().__init__(message)
        self.share = share


#: Every class that a mark may name.
_CLASSES: Final = {
    one.__name__: one
    for one in (BatchTooLarge, MisplacedTask, *(getattr(errors, name) for name in errors.__all__))
    if issubclass(one, SparkRelayError)
}


class WorkerFailure(Exception):  # noqa: N818 - it is not ours to catch, it carries one that is
    """Carries one of our errors from a step upstream of user code to the driver, through Spark's error text.

    ``task`` is the task that caused it; None if the whole job failed.
    """

    def __init__(self, error: SparkRelayError, key: bytes, task: TaskId | None = None) -> None:
        super().__init__(f"{_shortened(str(error))} {_mark(error, key, task)}")


def new_key() -> bytes:
    """Return a new secret key."""
    return secrets.token_bytes(_KEY_BYTES)


def find_failure(text: str, key: bytes) -> tuple[SparkRelayError, TaskId | None] | None:
    """Return the error that a failed Spark job's text carries under our signature, and its task; None if there is none.

    Marks with another signature are ignored: anybody can write them.
    """
    for match in _MARK.finditer(text):
        if hmac.compare_digest(_signature(match[1], key), match[2]):
            return _error(json.loads(base64.urlsafe_b64decode(match[1])))
    return None


def without_marks(text: str) -> str:
    """Return a text for the log without its marks: a record could replay a mark read there."""
    return _MARK.sub("", text)


def _mark(error: SparkRelayError, key: bytes, task: TaskId | None) -> str:
    known = next(one for one in type(error).__mro__ if _CLASSES.get(one.__name__) is one)
    content = {
        "class": known.__name__,
        "message": _shortened(str(error)),
        "task": None if task is None else str(task),
        "attributes": {k: v for k, v in vars(error).items() if isinstance(v, str | int | bool | None)},
    }
    payload = base64.urlsafe_b64encode(json.dumps(content).encode()).decode("ascii")
    return f"[sparkrelay-failure:{payload}:{_signature(payload, key)}]"


def _error(content: dict[str, Any]) -> tuple[SparkRelayError, TaskId | None]:
    kind = _CLASSES[content["class"]]
    # Bypass __init__: some take more than a message, and those arguments are attributes afterwards.
    error = kind.__new__(kind, content["message"])
    vars(error).update(content["attributes"])
    return error, None if content["task"] is None else TaskId.parse(content["task"])


def _signature(payload: str, key: bytes) -> str:
    return hmac.new(key, payload.encode("ascii"), hashlib.sha256).hexdigest()


def _shortened(text: str) -> str:
    return printable(text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}...")
