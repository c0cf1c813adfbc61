"""Which assignor leads while members name different ones."""

from __future__ import annotations

import pytest

from sparkrelay.assignment import (
    HighAvailabilityTaskAssignor,
    LeastMovementTaskAssignor,
    agreed_assignor,
    assignor_name,
    load_assignor,
)

HA = assignor_name(HighAvailabilityTaskAssignor)
LEAST = assignor_name(LeastMovementTaskAssignor)


@pytest.mark.parametrize(
    ("named", "agreed"),
    [
        ([None, None], HA),
        ([LEAST, LEAST], LEAST),
        (["mine:Own", "mine:Own"], "mine:Own"),
        # A rolling change from one built-in to another: the old one until the new has the majority, never back.
        ([LEAST, LEAST, HA], LEAST),
        ([LEAST, HA, HA], HA),
        # To one's own: the old one is on every member, the new one is not, until all have it.
        ([LEAST, "mine:Own", "mine:Own"], LEAST),
        ([None, "mine:Own", "mine:Own"], HA),
        # Between two of one's own: neither is on every member.
        (["mine:Own", "mine:Other"], HA),
    ],
)
def test_all_members_support_what_is_agreed(named, agreed):
    assert agreed_assignor(named) == agreed
    assert agreed_assignor(named[::-1]) == agreed


def test_a_tie_is_decided_the_same_way_by_every_leader():
    assert agreed_assignor([HA, LEAST]) == agreed_assignor([LEAST, HA])


def test_the_same_file_in_two_folders_is_the_same_assignor(tmp_path):
    names = set()
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "mine.py"
        file.write_text("from sparkrelay.assignment import StickyTaskAssignor\nclass Mine(StickyTaskAssignor): ...\n")
        names.add(assignor_name(type(load_assignor(f"{file}:Mine", {}))))
    assert names == {"mine.py:Mine"}


def test_names_can_be_loaded():
    for assignor in (HighAvailabilityTaskAssignor, LeastMovementTaskAssignor):
        assert type(load_assignor(assignor_name(assignor), {})) is assignor
