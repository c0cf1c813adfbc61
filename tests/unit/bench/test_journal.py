"""What a bench has reported is kept, however it ends."""

import json
import signal

import pytest
from bench.journal import Journal


@pytest.fixture(autouse=True)
def signals():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def written(file, raised=None):
    with Journal(str(file), {"peer": "1.2"}) as journal:
        journal.add({"bench": "x", "figure": 1})
        if raised is not None:
            signal.raise_signal(raised)
    return journal


def check(file, capsys):
    machine, line = (json.loads(text) for text in file.read_text().splitlines())
    assert (machine["bench"], machine["peer"]) == ("machine", "1.2")
    assert line == {"bench": "x", "figure": 1}
    assert capsys.readouterr().out == file.read_text()


def test_lines_go_to_the_file_too(tmp_path, capsys):
    journal = written(tmp_path / "lines")
    check(tmp_path / "lines", capsys)
    assert journal.machine["peer"] == "1.2"


def test_they_do_when_it_is_stopped(tmp_path, capsys):
    with pytest.raises(SystemExit, match="SIGTERM"):
        written(tmp_path / "lines", signal.SIGTERM)
    check(tmp_path / "lines", capsys)
