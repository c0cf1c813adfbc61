"""docs/reference/refused.md has the texts of the errors."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    made = subprocess.run([sys.executable, DOCS / "refused.py"], capture_output=True, check=True, text=True).stdout
    page = (DOCS / "reference" / "refused.md").read_text()
    assert page == made, "make it anew: python docs/refused.py > docs/reference/refused.md"
