"""A state changes only as its table allows, and an error says what came before."""

import enum

import pytest

from sparkrelay.errors import IllegalTransitionException
from sparkrelay.state_machine import StateMachine


class Light(enum.Enum):
    RED = 1
    GREEN = 2
    OFF = 3


NEXT = {Light.RED: {Light.GREEN}, Light.GREEN: {Light.RED, Light.OFF}, Light.OFF: set()}


def test_a_state_changes_as_its_table_allows():
    light = StateMachine("light", Light.RED, NEXT)
    light.move(Light.GREEN, "go")
    light.note("somebody pressed")
    assert light.state is Light.GREEN
    assert light.history == ("go: RED -> GREEN", "somebody pressed in GREEN")


def test_another_change_is_refused_and_changes_nothing():
    light = StateMachine("light", Light.RED, NEXT)
    light.move(Light.GREEN, "go")
    light.move(Light.OFF, "the plug was pulled")
    with pytest.raises(
        IllegalTransitionException,
        match=r"light: go \(to GREEN\) is not allowed in state OFF.* oldest first: go: RED -> GREEN; the plug",
    ):
        light.move(Light.GREEN, "go")
    assert light.state is Light.OFF
    assert len(light.history) == 2


def test_the_last_twenty_events_are_remembered():
    light = StateMachine("light", Light.RED, NEXT)
    for number in range(30):
        light.note(str(number))
    assert light.history == tuple(f"{number} in RED" for number in range(10, 30))
