"""The ``sparkrelay`` command: its sub-commands, its exit codes, its way of showing errors.

Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage, 130 interrupted, 141 the pipe that it
writes to was closed; a command may define more. A command returns an int for its exit code, or None for 0.
Sub-commands are named by import path, so that ``sparkrelay broker status`` need not import Spark, Arrow and numba.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from sparkrelay.cli.usage_errors import usage_error
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main"]

# Listed here, because the list of commands has no words on what is not imported yet.
_HELP = """Kafka Streams' high availability for PySpark pipelines.

* demo: show it all; of two instances one is killed, and the result is exact
* new: write a project that runs, to begin with
* broker: run a Kafka for development
* prepare: once on a machine, so that instances start in less time
* doctor: look at all that an instance needs, and say what to do
* top: watch a group of instances
* plan: show what would move if instances joined or left
* dead-letters: look at the records that an application has left out, and write them back
* state: look into the tables of an application
* offsets: show and set where an application is in the topics that it reads
* reset: start an application over; without --execute it only shows what it would do
* simulate: study task assignors in simulated groups

More on each: sparkrelay COMMAND --help
"""

app = App(
    name="sparkrelay",
    help=_HELP,
    version=lambda: version("sparkrelay"),
    suppress_keyboard_interrupt=False,  # run() says it
)
app.command("sparkrelay.cli.broker:broker", name="broker")
app.command("sparkrelay.cli.simulate:simulate", name="simulate")
app.command("sparkrelay.cli.demo:demo", name="demo")
app.command("sparkrelay.cli.doctor:doctor", name="doctor")
app.command("sparkrelay.cli.new:new", name="new")
app.command("sparkrelay.cli.plan:plan", name="plan")
app.command("sparkrelay.cli.state:state", name="state")
app.command("sparkrelay.cli.reset:reset", name="reset")
app.command("sparkrelay.cli.offsets:offsets", name="offsets")
app.command("sparkrelay.cli.dead_letters:dead_letters", name="dead-letters")
app.command("sparkrelay.cli.prepare:prepare", name="prepare")
app.command("sparkrelay.cli.top:top", name="top")

_WRONG_USAGE = 2
_INTERRUPTED = 130
#: What a shell says of a program that was ended by SIGPIPE.
_NOBODY_READS = 141


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
            exit_on_error=False,
            print_error=False,
        )
        if sys.stdout is not None:
            sys.stdout.flush()  # here its failure can be reported
    except CycloptsError as error:
        print(f"sparkrelay: {usage_error(error)}", file=sys.stderr)
        return _WRONG_USAGE
    except BrokenPipeError:
        _forget_output()
        return _NOBODY_READS
    except SparkRelayError as error:
        if os.environ.get("SPARKRELAY_TRACEBACK"):
            raise
        print(f"sparkrelay: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if os.environ.get("SPARKRELAY_TRACEBACK"):
            raise
        _forget_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"sparkrelay: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sparkrelay: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return outcome if isinstance(outcome, int) else 0


def _forget_output() -> None:
    """Let what is still to be written go nowhere: Python would try again at its end, and complain."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return  # it is no file
    os.close(nowhere)
