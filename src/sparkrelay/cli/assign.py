"""``sparkrelay assign``: run the assignors on JSON lines, one request and one answer a line.

The schema is that of the assignment cases, so that a case file, a hand-written group or another program can ask.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cyclopts import Parameter

from sparkrelay.cli.assign_ops import MalformedInput, run_operation
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["answer_lines", "assign"]


def assign(file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None) -> int:
    """Answer assignment requests, one JSON object a line: {"name", "op", "input"}.

    Every line is answered; if one was malformed or asked for an unknown op, its answer says so and the exit code is 1.

    Args:
        file: Read from here; standard input if left out or "-".
    """
    if file is None or str(file) == "-":
        return answer_lines(sys.stdin, sys.stdout)
    try:
        # What is no UTF-8 is answered as malformed, on its own line.
        source = file.open(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfigException(
            f"cannot read {file}: {error.strerror}; give a file of JSON lines, or - for standard input"
        ) from error
    with source:
        return answer_lines(source, sys.stdout)


def answer_lines(source: Iterable[str], sink: TextIO) -> int:
    """Write one answer for each line that is not blank; return 1 if any request could not be understood, else 0."""
    failed = 0
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        answer, understood = _answer(number, line)
        failed |= not understood
        sink.write(json.dumps(answer, separators=(",", ":")) + "\n")
        sink.flush()
    return int(failed)


def _answer(number: int, line: str) -> tuple[dict[str, Any], bool]:
    answer: dict[str, Any] = {}
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise MalformedInput(f"a request is a JSON object, not {type(request).__name__}")
        if "name" in request:
            answer["name"] = request["name"]
        answer["output"] = run_operation(request.get("op"), request.get("input"))
    except (json.JSONDecodeError, RecursionError, MalformedInput) as error:
        message = f"line {number}: {error}"
        return {**answer, "output": {"error": {"class": "MalformedInput", "message": message}}}, False
    return answer, True
