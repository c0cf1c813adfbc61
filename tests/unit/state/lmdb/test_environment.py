"""What is said of a directory whose state cannot be opened."""

import pytest

from sparkrelay.errors import StateStoreException
from sparkrelay.state.lmdb.environment import Environment


def test_a_directory_that_was_renamed_while_it_is_open_says_what_to_do(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    held = Environment(before, map_limit=1 << 20)
    before.rename(after)
    with pytest.raises(StateStoreException) as refused:
        Environment(after, map_limit=1 << 20)
    held.close()
    assert str(after) in str(refused.value)
    assert "that the directory had before it was renamed, if it was. Rename it back, or end the Spark session" in str(
        refused.value
    )
