"""A folder fits on a screen, and a file is read in one sitting."""

from collections import Counter
from pathlib import Path

import sparkrelay

HOME = Path(sparkrelay.__file__).parent
MOST_FILES = 26
MOST_LINES = 500


def test_no_folder_has_more_files_than_a_screen_shows():
    files = Counter(path.parent.relative_to(HOME).as_posix() for path in HOME.rglob("*.py"))
    assert {folder: count for folder, count in files.items() if count > MOST_FILES} == {}


def test_no_file_is_longer_than_one_sitting():
    lengths = {path.relative_to(HOME).as_posix(): len(path.read_text().splitlines()) for path in HOME.rglob("*.py")}
    assert {file for file, length in lengths.items() if length > MOST_LINES} == set()
