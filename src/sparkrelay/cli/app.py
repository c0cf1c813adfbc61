"""The ``sparkrelay`` command: its sub-commands, its exit codes, its way of showing errors.

Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage, 130 interrupted; a command may define
more. A command returns an int for its exit code, or None for 0. Sub-commands are named by import path, so that
``sparkrelay broker status`` need not import Spark, Arrow and numba.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from cyclopts import App

from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main"]

# Told here, because the list of commands has no words on what is not imported yet.
_HELP = """Kafka Streams' high availability for PySpark pipelines.

* demo: show it all; of two instances one is killed, and the result is exact
* broker: run a Kafka for development
* plan: tell what would move if instances joined or left
* simulate: study task assignors in simulated groups
* assign: answer assignment requests, one JSON object a line

Each has more to tell: sparkrelay COMMAND --help
"""

app = App(
    name="sparkrelay",
    help=_HELP,
    version=lambda: version("sparkrelay"),
)
app.command("sparkrelay.cli.broker:broker", name="broker")
app.command("sparkrelay.cli.simulate:simulate", name="simulate")
app.command("sparkrelay.cli.assign:assign", name="assign")
app.command("sparkrelay.cli.demo:demo", name="demo")
app.command("sparkrelay.cli.plan:plan", name="plan")

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Set ``SPARKRELAY_TRACEBACK=1`` to see where one of our own errors came from.
    """
    try:
        outcome = app(
            list(arguments) if arguments is not None else None,
            result_action="return_value",
            exit_on_error=True,
        )
    except SparkRelayError as error:
        if os.environ.get("SPARKRELAY_TRACEBACK"):
            raise
        print(f"sparkrelay: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sparkrelay: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return outcome if isinstance(outcome, int) else 0
