"""Run the assignors on JSON lines, one request and one answer a line.

    python -m tests.oracle.assign [FILE]

Reads standard input if FILE is left out or "-". The schema is that of the assignment cases, so that a case file, a
hand-written group or another program can ask. Every line is answered; if one was malformed or asked for an unknown op,
its answer says so and the exit code is 1.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tests.oracle.assign_ops import MalformedInput, run_operation

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def main(arguments: list[str]) -> int:
    """Answer the requests of the file named on the command line, or of standard input."""
    if len(arguments) > 1:
        sys.stderr.write("usage: python -m tests.oracle.assign [FILE]\n")
        return 2
    if not arguments or arguments == ["-"]:
        return answer_lines(sys.stdin, sys.stdout)
    try:
        # What is no UTF-8 is answered as malformed, on its own line.
        source = Path(arguments[0]).open(encoding="utf-8", errors="surrogateescape")  # noqa: SIM115 - entered below
    except OSError as error:
        sys.stderr.write(f"cannot read {arguments[0]}: {error.strerror}\n")
        return 2
    with source:
        return answer_lines(source, sys.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
