"""The pipeline of docs/coming-from.md, as it stands there."""

import re
from pathlib import Path

import pytest

from sparkrelay import Json
from sparkrelay.testing import TopologyTestDriver

PAGE = (Path(__file__).parents[3] / "docs" / "coming-from.md").read_text()

pytestmark = pytest.mark.integration


def test_the_page_s_pipeline_writes_each_window_once(spark):
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(compile(script, "coming-from.md", "exec"), names)
    with TopologyTestDriver(names["orders_by_country"](), spark=spark) as driver:
        driver.create_input_topic("users").pipe_input("ada", {"country": "NL"})
        orders, out = driver.create_input_topic("orders"), driver.create_output_topic("orders-by-country", value=Json())
        for time, amount in (("00:05", 2.5), ("00:50", 10.0), ("01:10", 1.0)):
            orders.pipe_input("ada", {"amount": amount, "time": f"2026-01-01T00:{time}Z"})
        assert out.is_empty
        orders.pipe_input("ada", {"amount": 3.0, "time": "2026-01-01T00:01:30Z"})
        (row,) = out.read_rows()
        assert (row["country"], row["orders"], row["total"]) == ("NL", 2, 12.5)
        assert row["window"]["start"] == "2026-01-01T00:00:00.000Z"
