import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import TopologyException
from sparkrelay.topology import CallSite
from sparkrelay.topology.naming import MAX_NAME, NameRegister, check_name, check_topic, speaking_name

HERE = CallSite("a.py", 1, "f")
THERE = CallSite("b.py", 2, "f")


@given(st.lists(st.text(), max_size=5))
def test_speaking_names_are_legal(parts):
    name = speaking_name(parts)
    assert check_name(name, HERE) == name
    assert check_topic(f"{name}-repartition", HERE)


def test_names_say_what_they_are_of():
    assert speaking_name(("flights", "by", "carrier", "window")) == "flights-by-carrier-window"
    assert speaking_name(("flights", "by", "upper(origin)")) == "flights-by-upper-origin"
    assert speaking_name(("...", "")) == "step"


def test_long_names_stay_apart():
    first, second = speaking_name(("x" * 300, "a")), speaking_name(("x" * 300, "b"))
    assert len(first) == len(second) == MAX_NAME
    assert first != second


def test_the_second_of_a_name_gets_a_number():
    register = NameRegister("store")
    assert [register.find("a", HERE) for _ in range(3)] == ["a", "a-2", "a-3"]
    assert register.find("y" * MAX_NAME, HERE) != register.find("y" * MAX_NAME, HERE)


def test_a_number_that_the_user_took():
    register = NameRegister("store")
    register.choose("a-2", THERE)
    register.find("a", HERE)
    with pytest.raises(TopologyException, match=r"a.py:1: the store made here is called 'a-2', but b.py:2 gives"):
        register.find("a", HERE)
