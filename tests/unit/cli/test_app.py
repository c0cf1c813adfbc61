"""The command line as a whole: exit codes, errors, and what it does not import."""

import subprocess
import sys

import pytest

from sparkrelay.cli import app as command_line
from sparkrelay.errors import ConfigException


def test_help_names_the_commands(capsys):
    assert command_line.run(["--help"]) == 0
    assert "broker" in capsys.readouterr().out


def test_the_version_is_the_packages(capsys):
    from importlib.metadata import version

    assert command_line.run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("sparkrelay")


def test_wrong_usage_exits_with_2(capsys):
    for arguments in (["no-such-command"], ["broker", "start", "--port", "many"]):
        assert command_line.run(arguments) == 2


@pytest.fixture
def failing(monkeypatch):
    def fail_with(error):
        def app(*arguments, **settings):
            raise error

        monkeypatch.setattr(command_line, "app", app)

    return fail_with


def test_our_errors_are_one_line_and_exit_1(failing, capsys):
    failing(ConfigException("port=x is no port"))
    assert command_line.run([]) == 1
    assert capsys.readouterr().err == "sparkrelay: port=x is no port\n"


def test_our_errors_show_where_they_came_from_when_asked(failing, monkeypatch):
    monkeypatch.setenv("SPARKRELAY_TRACEBACK", "1")
    failing(ConfigException("x"))
    with pytest.raises(ConfigException):
        command_line.run([])


def test_interruption_exits_with_130(failing, capsys):
    failing(KeyboardInterrupt())
    assert command_line.run([]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_bugs_are_not_hidden(failing):
    failing(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        command_line.run([])


def test_broker_commands_import_nothing_heavy():
    script = (
        "import sys, sparkrelay.cli.broker\n"
        "print([name for name in ('pyspark', 'pyarrow', 'numba', 'kafka', 'pandas') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
