"""No row is late after two repartition topics because tasks upstream are behind, or are initialized again.

620 of 3,000 orders of a backlog were, once, on a starved machine. The model of ``two_repartitions`` shows four ways.
"""

import pytest
from tests.doubles.clock import Clock
from tests.unit.runtime.batch.two_repartitions import COUNTRIES, TIMED, Model

from sparkrelay.runtime.batch import batch_thread

SEEDS = 5


@pytest.mark.parametrize("first", [0, pytest.param(SEEDS, marks=pytest.mark.long)], ids=["few", "many"])
@pytest.mark.parametrize("timed", [TIMED, frozenset([COUNTRIES])], ids=["both topics", "the last topic"])
@pytest.mark.parametrize("idle", [False, True], ids=["", "idle"])
def test_no_row_is_late(first, timed, idle, monkeypatch):
    """The first topic may carry no event times: they are computed after it, say."""
    for seed in range(first, first * 60 + SEEDS):
        model = Model(seed, idle=idle, timed=timed)
        clock = Clock()
        clock.monotonic = clock.perf_counter = clock.time = model.monotonic
        monkeypatch.setattr(batch_thread, "time", clock)
        try:
            for _ in range(300):
                model.step()
            model.drain()
            assert not model.unread
            assert all(model.watermarks[id_] >= newest for id_, newest in model.newest.items()), "a window waits"
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
