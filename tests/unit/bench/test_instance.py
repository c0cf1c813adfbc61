import pytest
from bench.children import BenchError, Instance
from bench.instance import Stillness

REPORTS = """
import sys
for line in {lines!r}:
    print(line, flush=True)
sys.stdin.read()
"""


def batch(rows):
    return f'{{"event": "batch", "rows": {rows}}}'


STILL = '{"event": "still"}'


def started(tmp_path, monkeypatch, *lines):
    (tmp_path / "some_instance.py").write_text(REPORTS.format(lines=lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Instance("some_instance", {})


def test_it_is_still_once_nothing_was_done_for_a_while_and_again_after_more_work():
    reports = []
    stillness = Stillness(reports.append, 100.0)
    for at, busy in [(101.0, True), (102.0, False), (102.9, False), (103.0, False), (109.0, False)]:
        stillness.look(at, busy=busy)
        assert reports == (["still"] if at >= 103 else [])
    stillness.look(110.0, busy=True)
    stillness.look(111.9, busy=False)
    assert reports == ["still"]
    stillness.look(112.0, busy=False)
    assert reports == ["still", "still"]


def test_what_is_done_after_the_last_record_counts_until_it_is_still(tmp_path, monkeypatch):
    # Still before there is input, and between, it goes on.
    lines = [STILL, batch(3), STILL, batch(2), batch(0), STILL, batch(0)]
    with started(tmp_path, monkeypatch, *lines) as instance:
        batches = instance.batches_until_still(5, 60.0)
        assert [report["rows"] for report in batches] == [3, 2, 0]
        instance.stop()


def test_more_records_than_there_are_is_an_error(tmp_path, monkeypatch):
    with (
        started(tmp_path, monkeypatch, batch(6), STILL) as instance,
        pytest.raises(BenchError, match="took 6 records of 5"),
    ):
        instance.batches_until_still(5, 60.0)
