"""The test of docs/how-to.md passes, as it stands there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to.md").read_text()

pytestmark = pytest.mark.integration


def test_the_page_s_test_passes(spark):
    section = PAGE.split("## Test a pipeline")[1].split("\n## ")[0]
    (script,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names = {}
    exec(compile(script, "how-to.md", "exec"), names)
    names["test_totals"](spark)
