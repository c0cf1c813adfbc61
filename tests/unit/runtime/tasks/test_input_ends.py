"""Which inputs hold a task's watermarks back."""

from sparkrelay.runtime.tasks.input_ends import InputEnds
from sparkrelay.types import TopicPartition

WEB, APP = TopicPartition("web", 0), TopicPartition("app", 0)


def test_what_has_more_than_is_taken_is_behind():
    ends = InputEnds(0.0)
    assert ends.behind({}) == frozenset()
    ends.listed({WEB: 10, APP: 5}, 1.0)
    assert ends.behind({WEB: 10, APP: 4}) == {"app"}
    assert ends.behind({WEB: 10}) == {"app"}
    assert ends.behind({WEB: 10, APP: 5}) == frozenset()


def test_what_has_just_grown_is_waited_for():
    ends = InputEnds(3.0)
    ends.listed({WEB: 10, APP: 5}, 1.0)
    assert ends.behind({WEB: 10, APP: 5}) == {"web", "app"}
    ends.listed({WEB: 11, APP: 5}, 3.5)
    assert ends.behind({WEB: 11, APP: 5}) == {"web", "app"}
    ends.listed({WEB: 11, APP: 5}, 4.0)
    assert ends.behind({WEB: 11, APP: 5}) == {"web"}
    ends.listed({WEB: 11, APP: 5}, 6.5)
    assert ends.behind({WEB: 11, APP: 5}) == frozenset()
    assert ends.behind({WEB: 11, APP: 4}) == {"app"}
