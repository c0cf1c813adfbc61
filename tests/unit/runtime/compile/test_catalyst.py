"""How Catalyst shows attributes, and what we read out of that."""

from __future__ import annotations

import pytest

from sparkrelay.runtime.compile.catalyst import Attribute, numbered


def test_attributes_are_read_by_their_names():
    assert numbered("a#1\nb#22L\ntime#3-T5000ms\nat#4L-T0ms", ["a", "b", "time", "at"]) == [
        Attribute(1, "a"),
        Attribute(22, "b"),
        Attribute(3, "time"),
        Attribute(4, "at"),
    ]


def test_no_attributes():
    assert numbered("", []) == []


@pytest.mark.parametrize("name", ["", "#7L", "a#1\nb", "\n", 'say "no"', "`", "a b, c#9"])
def test_names_have_anything_in_them(name):
    assert numbered(f"{name}#5L\n{name}#6", [name, name]) == [Attribute(5, name), Attribute(6, name)]


@pytest.mark.parametrize("text", ["a", "a#x", "b#1", "a#1 ", "a#1\nb#2", "'a"])
def test_what_is_shown_in_another_way(text):
    assert numbered(text, ["a"]) is None
