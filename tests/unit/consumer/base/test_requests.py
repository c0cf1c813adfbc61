from __future__ import annotations

import math

from sparkrelay.client.backoff import Backoff
from sparkrelay.consumer.base.requests import RequestState


def test_one_request_at_a_time():
    state = RequestState(Backoff(0.1, 1.0, jitter=0))
    assert state.wait(0.0) == 0.0
    state.sent()
    assert state.wait(5.0) == math.inf
    state.succeeded()
    assert state.wait(5.0) == 0.0


def test_pauses_grow_to_a_bound_and_end_with_success():
    state = RequestState(Backoff(0.1, 1.0, jitter=0))
    pauses = []
    for _ in range(6):
        state.sent()
        state.failed(10.0)
        pauses.append(round(state.wait(10.0), 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    state.succeeded()
    assert state.wait(10.0) == 0.0


def test_jitter_stays_in_its_bounds():
    for _ in range(50):
        state = RequestState(Backoff(1.0, 1.0, jitter=0.2))
        state.failed(0.0)
        assert 0.8 <= state.wait(0.0) <= 1.2
