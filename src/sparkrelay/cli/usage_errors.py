"""Usage errors: one line, like other errors of the command line, with what to write instead."""

from __future__ import annotations

from typing import Final

from cyclopts.exceptions import (
    ConsumeMultipleError,
    CycloptsError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

_OFFSETS: Final = (
    "a reset starts at the beginning or the end, --to earliest or --to latest; then use sparkrelay offsets set"
)

#: Options of Kafka's own tools, by our command for the same purpose.
_OF_KAFKA: Final = {
    "reset": {
        "--to-earliest": "write --to earliest",
        "--to-latest": "write --to latest",
        **dict.fromkeys(("--to-offset", "--by-duration", "--shift-by", "--to-datetime", "--from-file"), _OFFSETS),
        "--intermediate-topics": "name the application's own topics by --internal-topics A,B, if they are not found",
        "--dry-run": "leave it out: without --execute nothing is changed",
        "--config-file": "write --command-config FILE",
        "--force": "stop the instances first: a reset removes no members",
    },
    "offsets": {
        "--group": "write --application-id ID: it is the group's name",
        "--all-topics": "write --topic TOPIC, once for each",
        "--to-earliest": "write --to earliest",
        "--to-latest": "write --to latest",
        "--to-offset": "write --to OFFSET",
        "--to-datetime": "write --to TIME, such as --to 2026-11-28T12:00:00Z",
        "--reset-offsets": "write sparkrelay offsets set",
        "--describe": "write sparkrelay offsets show",
        "--dry-run": "leave it out: without --execute nothing is changed",
    },
}


def usage_error(error: CycloptsError) -> str:
    """Return a usage error as one line: the command, the option, its value, and what to write."""
    chain = tuple(error.command_chain or ())
    command = " ".join(("sparkrelay", *chain))
    return f"{_reason(error, chain, command)}; see {command} --help"


def _reason(error: CycloptsError, chain: tuple[str, ...], command: str) -> str:
    if isinstance(error, UnknownOptionError):
        option = (error.token.keyword or error.token.value).split("=", 1)[0]
        instead = _OF_KAFKA.get(chain[0] if chain else "", {}).get(option)
        if instead is not None:
            return f"{command} has no option {option}: {instead}"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"{command} does not take {' '.join(map(repr, error.unused_tokens))}"
    if isinstance(error, MissingArgumentError) and not isinstance(error, ConsumeMultipleError) and error.argument:
        argument = error.argument
        name = argument.name if argument.index is None else argument.name.removeprefix("--").upper()
        return f"{command} needs {name}: {(argument.parameter.help or 'a value').rstrip('.')}"
    error.verbose = False
    text = str(error)
    return text if text.endswith("...") else text.removesuffix(".")
