"""Asking over HTTP at a steady rate, and the tables of what it took."""

import pytest
from bench.asker import Asker, is_there
from bench.children import BenchError
from bench.tables import _queries
from tests.ports import own_port

from sparkrelay.observe.http_server import HttpServer


def answer(environ, start_response):
    """Have the row of ``/ada``, none of others, and be not the one to ask for ``/gone``."""
    other = "503 Service Unavailable" if "HTTP_SPARKRELAY_FORWARDED" in environ else "404 Not Found"
    path = environ["PATH_INFO"]
    start_response({"/ada": "200 OK", "/gone": "503 Service Unavailable"}.get(path, other), [])
    return []


@pytest.fixture
def port():
    with HttpServer(answer, host="127.0.0.1", port=0, name="test") as server:
        yield server.port


def test_only_answers_are_measured(port, wait_until):
    with Asker([(port, "/ada"), (port, "/nobody"), (port, "/gone")], rate=200) as asker:
        wait_until(lambda: len(asker._waits) >= 20 and asker.unanswered >= 10, "too few answers")
    figures = asker.figures()
    assert figures["answers"] >= 20
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    assert figures["unanswered"] >= 10
    asker.forget()
    with pytest.raises(BenchError, match="no question was answered"):
        asker.figures()


def test_nobody_is_there_to_answer(port, wait_until):
    with Asker([(own_port(), "/ada")], rate=50) as asker:
        wait_until(lambda: asker.unanswered >= 3, "it is not noticed")
    assert is_there(port, "/ada")
    assert not is_there(port, "/elsewhere")


def test_the_tables():
    asked = {
        "bench": "queries",
        "rate": 1000,
        "runs": 1,
        "p50_ms": 2.04,
        "p99_ms": 14.0,
        "max_ms": 20.0,
        "answered_rps": 998,
    }
    rates = {"bench": "queries", "runs": 1, "warm_rps": 900_000, "warm_records_per_cpu_s": 500_000}
    tables = _queries(
        [
            {**asked, "asked": "who has the row", "busy_cores": 0.8},
            {**rates, "variant": "left"},
            {**rates, "variant": "asked", "warm_rps_ratio": 0.95, "warm_records_per_cpu_s_ratio": 0.97},
            {"bench": "queries", "rows": 1_000_000, "runs": 1, "read_s": 4.56},
        ]
    )
    cells = [[list(column.cells) for column in table.columns] for table in tables]
    assert [row[0] for row in cells[0]] == ["who has the row", "1,000", "998", "2.0", "14.0", "20.0", "0.80"]
    assert [row[1] for row in cells[1]] == ["asked", "900", "0.95", "500", "0.97"]
    assert [row[0] for row in cells[2]] == ["1,000,000", "4.6"]
