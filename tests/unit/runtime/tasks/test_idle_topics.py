"""Which topics are waited for, and when a batch is due because one is not any longer."""

from hypothesis import given, strategies as st

from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.tasks.idle_topics import IdleTopics

BOTH = frozenset({"web", "app"})


def report(*read, held=False):
    """Return what a batch reports that has rows of some topics, and whether one is what keeps a window open."""
    return StateReport("counts", 0, left_ms=0 if held else 1, sources=frozenset(read))


def test_a_topic_is_waited_for_until_it_was_silent_for_long_enough():
    idle = IdleTopics({"counts": 5.0}, {"counts": BOTH})
    assert idle.look({"app"}, 0.0) == {"counts": BOTH}
    idle.committed([report("web", "app", held=True)], {"counts": BOTH}, 0.0)
    assert idle.look({"app"}, 4.0) == {"counts": BOTH}
    idle.committed([report("web", "app", held=True)], {"counts": BOTH}, 4.0)
    assert idle.look((), 8.9) == {"counts": BOTH}
    idle.committed([report("web", held=True)], {"counts": BOTH}, 8.9)
    only_web = idle.look((), 9.0)
    assert only_web == {"counts": {"web"}}
    assert idle.due(only_web) == BOTH
    # It failed, and is due as much as ever.
    assert idle.due(idle.look((), 9.5)) == BOTH
    idle.committed([report(held=True)], only_web, 9.5)
    assert idle.due(idle.look((), 13.8)) == frozenset()
    none = idle.look((), 13.9)
    assert (none, idle.due(none)) == ({"counts": frozenset()}, BOTH)
    idle.committed([report()], none, 13.9)
    assert idle.due(idle.look((), 99.0)) == frozenset()
    # One comes again.
    idle.committed([report("app", held=True)], idle.look((), 100.0), 100.0)
    assert idle.look((), 104.9) == {"counts": {"app"}}
    assert idle.due(idle.look((), 105.0)) == BOTH


def test_rows_that_reach_no_grouping_are_silence_of_that_one():
    idle = IdleTopics({"counts": 5.0, "sums": 5.0}, {"counts": BOTH, "sums": BOTH})
    awaited = idle.look((), 0.0)
    for now in (3.0, 6.0):
        awaited = idle.look((), now)
        sums = StateReport("sums", 1, sources=BOTH)
        idle.committed([report("web"), sums, StateReport("users", 1)], awaited, now)
    assert idle.look((), 7.0) == {"counts": {"web"}, "sums": BOTH}


def test_a_batch_is_due_only_if_a_window_ends_by_it_and_once_for_a_new_owner():
    idle = IdleTopics({"counts": 5.0}, {"counts": BOTH})
    idle.look((), 50.0)
    awaited = idle.look((), 55.0)
    assert idle.due(awaited) == BOTH
    idle.committed([report()], awaited, 55.0)
    idle.committed([report("web", "app", held=False)], idle.look((), 60.0), 60.0)
    assert idle.due(idle.look((), 99.0)) == frozenset()


def test_the_silence_of_a_broker_is_none_of_the_topics():
    idle = IdleTopics({"counts": 5.0}, {"counts": BOTH})
    idle.look((), 0.0)
    idle.inputs_unknown(60.0)
    assert idle.look((), 64.9) == {"counts": BOTH}
    assert idle.look((), 65.0) == {"counts": frozenset()}


def test_without_the_setting_nothing_is_waited_for():
    idle = IdleTopics({"counts": 0.0}, {"counts": BOTH})
    assert idle.look({"web"}, 0.0) == {}
    assert idle.due({}) == frozenset()
    idle.committed([report("web", held=True)], {}, 0.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.frozensets(st.sampled_from(sorted(BOTH))), st.booleans()), max_size=20))
def test_what_had_rows_within_the_time_is_waited_for_and_nothing_else(turns):
    idle, now, since = IdleTopics({"counts": 5.0}, {"counts": BOTH}), 0.0, dict.fromkeys(BOTH, 0.0)
    idle.look((), now)
    for seconds, topics, behind in turns:
        now += seconds
        if behind:
            since |= dict.fromkeys(topics, now)
        awaited = idle.look(topics if behind else (), now)
        assert awaited == {"counts": {topic for topic, at in since.items() if now - at < 5.0}}
        if not behind:
            idle.committed([report(*topics, held=True)], awaited, now)
            since |= dict.fromkeys(topics, now)
