"""Wrong usage is one line that names the command, the option and what to write; options of Kafka's tools are known."""

import pytest

from sparkrelay.cli import app as command_line

RESET = ["reset", "--application-id", "app", "--bootstrap-servers", "localhost:1"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["reset"], "sparkrelay reset needs --application-id: The application.id of the application, which must be "),
        (["reset", "--application-id", "app"], "sparkrelay reset needs --bootstrap-servers: HOST:PORT of its Kafka; s"),
        (["reset", "--application-id"], "sparkrelay reset needs --application-id: "),
        ([*RESET, "--to-earliest"], "sparkrelay reset has no option --to-earliest: write --to earliest; see sparkrel"),
        ([*RESET, "--to-offset=3"], "sparkrelay reset has no option --to-offset: a reset starts at the beginning or"),
        ([*RESET, "--dry-run"], "sparkrelay reset has no option --dry-run: leave it out: without --execute nothing is"),
        ([*RESET, "--intermediate-topics", "a"], "sparkrelay reset has no option --intermediate-topics: name the app"),
        ([*RESET, "--topic", "a"], "Unknown option: --topic. Did you mean --topics?; see sparkrelay reset --help"),
        ([*RESET, "orders"], "sparkrelay reset does not take 'orders'; see sparkrelay reset --help"),
        ([*RESET, "--to", "now"], 'Invalid value "now" for --to. Choose from: "earliest", "latest"; see sparkrelay r'),
        (["offsets", "show", "--group", "app"], "sparkrelay offsets show needs --application-id: The application.id "),
        (
            ["offsets", "show", "--group", "a", "--application-id", "a", "--bootstrap-servers", "b"],
            "sparkrelay offsets show has no option --group: write --application-id ID: it is the group's name; see ",
        ),
        (["top"], "sparkrelay top needs URL: "),
        (["broker", "start", "--port", "many"], 'Invalid value for --port: unable to convert "many" into int; see sp'),
        (["rest"], 'Unknown command "rest". Did you mean "reset"?'),
    ],
)
def test_wrong_usage(arguments, line, capsys):
    assert command_line.run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"sparkrelay: {line}")
    assert shown.err.count("\n") == 1
