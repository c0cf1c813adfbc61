"""docs/reference/commands.md says what the commands say of themselves."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    # A process of its own: how a program was started shows in how commands are to be used.
    made = subprocess.run([sys.executable, DOCS / "commands.py"], capture_output=True, check=True, text=True).stdout
    page = (DOCS / "reference" / "commands.md").read_text()
    assert page == made, "make it anew: python docs/commands.py > docs/reference/commands.md"
