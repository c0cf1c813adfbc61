import threading

from tests.waiting import LONG

from sparkrelay.catalyst.remembered import remembered


def test_it_is_found_out_once_for_each_object():
    asked = []

    class Thing:
        @remembered
        def size(self):
            """How large it is."""
            asked.append(self)
            return len(asked)

    one, other = Thing(), Thing()
    assert (one.size, one.size, other.size, other.size) == (1, 1, 2, 2)
    assert asked == [one, other]


def test_what_could_not_be_found_out_is_asked_again():
    asked = []

    class Thing:
        @remembered
        def size(self):
            asked.append(1)
            if len(asked) < 2:
                raise ValueError("not yet")
            return 3

    thing = Thing()
    try:
        _ = thing.size
    except ValueError:
        assert thing.size == 3
    assert len(asked) == 2


def test_threads_that_ask_at_the_same_time_do_not_wait_for_one_another():
    """Each is inside of a property that the other one may ask for."""
    both = threading.Barrier(2)

    class Thing:
        @remembered
        def first(self):
            both.wait(LONG)
            return self.second

        @remembered
        def second(self):
            both.wait(LONG)
            return "found"

    one, other = Thing(), Thing()
    one.__dict__["second"] = "found"
    found = {}
    threads = [
        threading.Thread(target=lambda: found.update(one=one.first), daemon=True),
        threading.Thread(target=lambda: found.update(other=other.second), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert found == {"one": "found", "other": "found"}
