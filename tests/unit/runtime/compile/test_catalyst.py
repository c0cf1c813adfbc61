"""How Catalyst shows attributes, and what we read out of that."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from tests.waiting import LONG

from sparkrelay.runtime.compile.catalyst import Attribute, Node, numbered


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


def java_node(name, asked):
    """A node in the JVM; `asked()` is called each time that its class's name is asked for."""
    return SimpleNamespace(productPrefix=lambda: (asked(), name)[1])


def test_threads_that_read_plans_at_the_same_time_do_not_wait_for_one_another():
    """A projection's expressions are its aliases; the aliases of another node are among its expressions."""
    both = threading.Barrier(2)
    project, leaf = (Node(java_node(name, lambda: both.wait(LONG))) for name in ("Project", "Range"))
    project.__dict__["aliases"] = {}
    found = {}
    threads = [
        threading.Thread(target=lambda: found.update(expressions=project.expressions), daemon=True),
        threading.Thread(target=lambda: found.update(aliases=leaf.aliases), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert found == {"expressions": (), "aliases": {}}


def test_a_node_remembers_what_it_has_said():
    asked = []
    node = Node(java_node("Range", lambda: asked.append(1)))
    assert (node.kind, node.kind, node.children, node.references) == ("Range", "Range", (), [])
    assert len(asked) == 1
