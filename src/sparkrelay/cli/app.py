"""The ``sparkrelay`` command: its sub-commands, exit codes and error output.

Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage, 130 interrupted, 141 output pipe closed;
a command may define more. A command returns its exit code, or None for 0. Sub-commands are named by import path, so
that ``sparkrelay broker status`` does not import Spark, Arrow and numba.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError, Parameter

from sparkrelay.cli.usage_errors import usage_error
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Listed here, because the generated list has no descriptions of commands that are not imported yet.
_HELP = """Kafka Streams' high availability for PySpark pipelines.

* demo: see it all in action; one of two instances is killed, and the result is exact
* new: create a project that runs
* broker: run a Kafka for development
* sql: run a pipeline that is a file of SQL
* prepare: once on a machine, for faster starts of instances
* doctor: check all that an instance needs, with remedies
* top: watch a group of instances
* plan: show what would move if instances joined or left
* dead-letters: inspect the records that an application has left out, and replay them
* state: read the tables of an application
* offsets: show and set an application's offsets in the topics that it reads
* reset: start an application over; without --execute it only shows what it would do
* simulate: study task assignors in simulated groups

More on each: sparkrelay COMMAND --help
"""

app = App(
    name="sparkrelay",
    help=_HELP,
    version=lambda: version("sparkrelay"),
    default_parameter=Parameter(negative=()),  # no --no-execute, no --empty-remove
    suppress_keyboard_interrupt=False,  # run() reports it
)
for _name in (
    "broker", "simulate", "demo", "doctor", "new", "plan", "sql", "state", "reset", "offsets", "dead-letters",
    "prepare", "top"
):  # fmt: skip
    _module = _name.replace("-", "_")
    app.command(f"sparkrelay.cli.{_module}:{_module}", name=_name)

_WRONG_USAGE = 2
_INTERRUPTED = 130
#: A shell's code for a program ended by SIGPIPE.
_PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    ``SPARKRELAY_TRACEBACK=1`` shows the traceback of our own errors.
    """
    try:
        outcome = app(
            list(arguments) if arguments is not None else None,
            result_action="return_value",
            exit_on_error=False,
            print_error=False,
        )
        if sys.stdout is not None:
            sys.stdout.flush()  # so that its failure can be reported
    except CycloptsError as error:
        print(f"sparkrelay: {usage_error(error)}", file=sys.stderr)
        return _WRONG_USAGE
    except BrokenPipeError:
        _discard_output()
        return _PIPE_CLOSED
    except SparkRelayError as error:
        if os.environ.get("SPARKRELAY_TRACEBACK"):
            raise
        print(f"sparkrelay: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if os.environ.get("SPARKRELAY_TRACEBACK"):
            raise
        _discard_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"sparkrelay: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sparkrelay: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return outcome if isinstance(outcome, int) else 0


def _discard_output() -> None:
    """Discard unwritten output: Python would try to write it again at exit, and complain."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return  # not a file
    os.close(nowhere)
