"""The events of a scenario: when which process joins, leaves or dies. A pure function."""

from __future__ import annotations

import enum
import random
from typing import NamedTuple

from sparkrelay.simulate.scenario import Churn, Scenario


class Action(enum.StrEnum):
    """An event's kind."""

    #: A process joins, with the copies on its disk.
    JOIN = "join"
    #: A process leaves the group and stops.
    LEAVE = "leave"
    #: A process dies; the group has not noticed yet.
    CRASH = "crash"
    #: A dead process's session has expired: the group has noticed.
    DETECT = "detect"
    #: A rebalance without a reason.
    NUDGE = "nudge"


class Event(NamedTuple):
    """An event of a process, at a time in simulated seconds since the first event."""

    at_s: float
    action: Action
    process: int


def churn_events(scenario: Scenario) -> tuple[Event, ...]:
    """Return the events by time; the first one is at 0."""
    chance = random.Random(scenario.seed)
    everybody = range(scenario.clients)
    events: list[Event] = []
    match scenario.churn:
        case Churn.CALM:
            events.append(Event(0.0, Action.NUDGE, 0))
        case Churn.SCALE_OUT:
            events += (Event(0.0, Action.JOIN, scenario.clients + new) for new in range(scenario.churn_size))
        case Churn.SCALE_IN:
            events += (Event(0.0, Action.LEAVE, p) for p in chance.sample(everybody, scenario.churn_size))
        case Churn.ROLLING_BOUNCE:
            for turn in everybody:
                begin = turn * (scenario.downtime_s + scenario.pause_s)
                events.append(Event(begin, Action.LEAVE, turn))
                events.append(Event(begin + scenario.downtime_s, Action.JOIN, turn))
        case Churn.RACK_LOSS:
            lost = [p for p in everybody if p % scenario.racks == scenario.lost_rack]
            events += (Event(0.0, Action.CRASH, p) for p in lost)
            events += (Event(scenario.detection_s, Action.DETECT, p) for p in lost)
        case Churn.FLAPPING:
            flapping = chance.choice(everybody)
            for turn in range(scenario.churn_size):
                begin = turn * (scenario.downtime_s + scenario.pause_s)
                events.append(Event(begin, Action.CRASH, flapping))
                if scenario.detection_s < scenario.downtime_s:
                    events.append(Event(begin + scenario.detection_s, Action.DETECT, flapping))
                events.append(Event(begin + scenario.downtime_s, Action.JOIN, flapping))
    return tuple(events)
