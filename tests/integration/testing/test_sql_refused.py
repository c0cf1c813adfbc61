"""Statements that docs/how-to/sql-refused.md names: those that are refused, and those that run instead."""

import re

import pytest
from tests.docs_pages import HOW_TO

from sparkrelay import StreamsBuilder
from sparkrelay.errors import TopologyException

pytestmark = pytest.mark.integration

PAGE = (HOW_TO / "sql-refused.md").read_text(encoding="utf-8")
(SOURCES,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
REFUSED, INSTEAD = (
    re.findall(rf'^```sql title="{title}"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    for title in ("refused", "instead")
)


def made(spark, text):
    builder = StreamsBuilder(spark)
    builder.script(SOURCES + text)
    return builder.build()


def test_each_has_another_one_beside_it():
    assert len(REFUSED) == len(INSTEAD) >= 8


@pytest.mark.parametrize("text", REFUSED)
def test_it_is_refused(spark, text):
    with pytest.raises(TopologyException):
        made(spark, text)


@pytest.mark.parametrize("text", INSTEAD)
def test_it_runs(spark, text):
    assert made(spark, text).subtopologies


@pytest.mark.parametrize(
    "text",
    [
        "SELECT country FROM users INTERSECT ALL SELECT country FROM items",
        "SELECT page FROM clicks EXCEPT SELECT user FROM payments",
        "SELECT user FROM users UNION ALL SELECT user FROM clicks",
        "SELECT user, explode(array(1, 2)) AS x FROM users",
        "SELECT * FROM users TABLESAMPLE (10 PERCENT)",
        "SELECT * FROM items ORDER BY price LIMIT 5 OFFSET 5",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    ],
)
def test_so_is_what_the_table_names(spark, text):
    with pytest.raises(TopologyException):
        made(spark, f"INSERT INTO out {text};")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT country FROM users INTERSECT SELECT country FROM items",
        "SELECT * FROM users u WHERE NOT EXISTS (SELECT 1 FROM items i WHERE i.item = u.user AND i.price = u.age)",
        "SELECT * FROM users WHERE pmod(hash(user), 10) = 0",
        "SELECT * FROM items ORDER BY price LIMIT 10",
    ],
)
def test_and_this_runs_instead(spark, text):
    assert made(spark, f"INSERT INTO out {text};").subtopologies
