import contextlib
import threading

import pytest

from sparkrelay.simulate.deadline import OutOfTime, deadline


def loop_for_ever():
    while True:
        with contextlib.suppress(Exception):
            sum(range(1000))


def test_a_call_that_does_not_return_is_interrupted_through_its_own_handlers():
    with pytest.raises(OutOfTime), deadline(0.05):
        loop_for_ever()


def test_a_block_that_returns_is_left_alone():
    with deadline(60):
        pass


def test_other_threads_have_no_limit():
    done = []

    def work():
        with deadline(60):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
