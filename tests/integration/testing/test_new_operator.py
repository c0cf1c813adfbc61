"""The operator that `docs/internals/new-operator.md` builds, from the page's own code."""

from pathlib import Path

import pytest

from sparkrelay import Integer, Json, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver
from sparkrelay.topology.streams import KStream

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/internals/new-operator.md").read_text(encoding="utf-8")


def block(title):
    """Return a block of code of the page."""
    _, _, rest = PAGE.partition(f'```python title="{title}"\n')
    return rest.partition("```\n")[0]


@pytest.mark.parametrize("name", ["step.py", "plan.py", "run.py"])
def test_the_page_shows_the_code_that_runs(name):
    assert block(name) == (ROOT / "tests/every_nth" / name).read_text(encoding="utf-8")


@pytest.fixture
def _with_the_call(monkeypatch):
    """Add the page's method to streams."""
    names = {}
    exec(
        "from __future__ import annotations\n"
        "from sparkrelay.topology.call_site import find_call_site\n"
        "from sparkrelay.topology.frames import frame_at\n"
        "from sparkrelay.topology.reading.calls import Call\n"
        "from sparkrelay.topology.reading.emitting import emitting, keyed\n"
        "from sparkrelay.topology.reading.repartition import column_number\n"
        "from tests.every_nth.step import EveryNth\n" + block("streams.py"),
        names,
    )
    monkeypatch.setattr(KStream, "everyNth", names["everyNth"], raising=False)


@pytest.mark.usefixtures("_with_the_call")
def test_every_nth_row_of_a_key_is_emitted_also_after_a_restore(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("user"), value=Json("page string, n long"))
    clicks.everyNth(3, "user").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        users, out = driver.create_input_topic("clicks"), driver.create_output_topic("out", key=String())
        for n, user in enumerate(["ada", "bob", "ada", None, "ada", "bob", "ada"]):
            users.pipe_input(user, {"page": "p", "n": n}, n)
        assert [(record.key, record.value["n"]) for record in out.read_records()] == [("ada", 4)]
        driver.restart(from_changelog=True)
        driver.batch = "all"
        for n, user in enumerate(["bob", "ada", "ada", "ada", "bob"], 7):
            users.pipe_input(user, {"page": "p", "n": n}, n)
        assert [(record.key, record.value["n"]) for record in out.read_records()] == [("bob", 7), ("ada", 9)]


@pytest.mark.usefixtures("_with_the_call")
def test_rows_of_a_key_meet_in_one_task(spark):
    builder = StreamsBuilder()
    builder.stream("clicks", key=Integer("k"), value=Json("page string")).everyNth(2, "page").to("out", value=Json())
    topology = builder.build()
    assert [subtopology.stores for subtopology in topology.subtopologies] == [(), ("clicks-every-2-by-page",)]
    with TopologyTestDriver(topology, spark=spark) as driver:
        for k, page in enumerate("abacba"):
            driver.create_input_topic("clicks").pipe_input(k, {"page": page}, k)
        rows = driver.create_output_topic("out").read_rows()
    assert sorted(row["page"] for row in rows) == ["a", "b"]
