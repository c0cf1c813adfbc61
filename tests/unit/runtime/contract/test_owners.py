"""Who writes for tasks, as the group's offsets say it."""

import pytest

from sparkrelay.runtime.contract.owners import OWNER, Owner, noted_owner, writes_for

OWN = Owner("0e1f9a52-3c44-4a8e-9d57-1f8b3f1d2c3b-0", 2)


def test_an_owner_is_read_as_it_is_written():
    assert Owner.parse(str(OWN)) == OWN
    assert OWN.transactional_ids("app", 3) == [f"app-{OWN.thread}-3-0", f"app-{OWN.thread}-3-1"]


@pytest.mark.parametrize(
    "text", ["", "none", "a", "a/0", "a/-1", "a/10000", "a/1 ", "a b/1", "/1", "a" * 65 + "/1", "ä/1"]
)
def test_what_names_no_owner_is_none(text):
    assert Owner.parse(text) is None


@pytest.mark.parametrize(
    ("note", "said"), [("", None), ("{}", None), ('{"owner":5}', None), ('{"owner":"x/1"}', "x/1")]
)
def test_a_note_says_who_it_is_or_nothing(note, said):
    assert OWNER == "owner"
    assert noted_owner(note) == said


@pytest.mark.parametrize(
    ("name", "writes"),
    [
        (OWN.transactional_id("app", 0, 1), True),
        ("app-0_3", True),
        ("app-dead-letters", False),
        ("app-other-0_3", False),
        ("other-0_3", False),
        ("0_3", False),
        (OWN.transactional_id("app-2", 0, 1), False),
        (OWN.transactional_id("app", 0, 1) + "-5", False),
    ],
)
def test_the_transactional_ids_of_an_application_are_known_by_their_form(name, writes):
    assert writes_for("app", name) is writes
