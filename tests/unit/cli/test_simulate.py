"""What is refused before Spark is started."""

import subprocess
import sys

from sparkrelay.cli import app as command_line


def refusal(capsys, *arguments):
    assert command_line.run(["simulate", *map(str, arguments)]) == 1
    return capsys.readouterr().err


def test_help_names_the_options(capsys):
    assert command_line.run(["simulate", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--scenarios", "--seed", "--assignor", "--churn", "--cores", "--json", "--picture", "rack-loss"):
        assert option in shown


def test_wishes_that_cannot_be_met_are_refused_at_once(capsys, tmp_path):
    assert "--scenarios 0" in refusal(capsys, "--scenarios", 0)
    assert "--cores 0" in refusal(capsys, "--cores", 0)
    assert "nowhere" in refusal(capsys, "--json", tmp_path / "nowhere" / "out.json")
    assert "exists already" in refusal(capsys, "--csv", tmp_path)
    assert ".svg" in refusal(capsys, "--picture", tmp_path / "out.gif")
    assert "no.such:Assignor" in refusal(capsys, "--assignor", "no.such:Assignor")


def test_an_assignor_in_the_current_folder_is_found_by_its_module(tmp_path):
    (tmp_path / "mine_here.py").write_text("from sparkrelay.assignment import StickyTaskAssignor as Mine\n")
    script = (
        "import sys; sys.path.remove('')\n"  # as an installed command has it
        "from sparkrelay.cli import app, simulate\n"
        "simulate._chosen = lambda names, *_: sys.exit(f'{simulate.contestants(names)[0].name} is found')\n"
        "app.run(['simulate', '--assignor', 'mine_here:Mine'])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert shown.stderr.strip() == "Sticky is found"


def test_an_unknown_kind_of_churn_is_wrong_usage():
    assert command_line.run(["simulate", "--churn", "earthquake"]) == 2


def test_the_command_imports_no_spark_until_it_runs():
    script = "import sys, sparkrelay.cli.simulate; print('pyspark' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
