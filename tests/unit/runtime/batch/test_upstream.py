"""Who holds the rows of a repartition topic, by what its writers have committed and what they have not read."""

import math

import pytest
from tests.doubles.tasks import task_of

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.runtime.batch.upstream import Upstream
from sparkrelay.runtime.contract.commit_notes import note_text
from sparkrelay.runtime.tasks.event_times import WrittenTimes
from sparkrelay.runtime.topics.writers import Writers
from sparkrelay.state.window_keys import LATEST as ANY_TIME, NO_TIME
from sparkrelay.types import TaskId, TopicPartition

ROWS, BETWEEN = TopicPartition("rows", 0), TopicPartition("between", 0)
FAST, SLOW, FIRST = TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("first", 0)


class Group:
    """What a group has committed, and where logs end."""

    def __init__(self, *, upstream=()):
        self.now = 0.0
        self.notes, self.stands, self.starts = {}, {}, {}
        self.ends = {ROWS: 40, FAST: 100, SLOW: 100} | dict.fromkeys(upstream, 100)
        self.writers = {"rows": Writers(((FAST,), (SLOW,)), {"above": frozenset(upstream)})}
        self.task = task_of(TaskId(1, 0), (ROWS,), {}, None)
        self.asks = Upstream(self, clock=lambda: self.now)

    def commit(self, partition, offset, newest=None, *, limit=ANY_TIME):
        note = WrittenTimes(["rows"]).note({} if newest is None else {"rows": newest}, limit=limit)
        self.stands[partition] = OffsetAndMetadata(offset, note_text(TaskId(0, 0), {"event_times": note}))

    def commits(self, partitions):
        return {partition: self.stands[partition] for partition in partitions if partition in self.stands}

    def offsets(self, wanted, *, timeout, read_committed=True):
        del timeout
        assert read_committed or {p.topic for p in wanted} <= {"rows", "between"}
        return {
            p: self.starts.get(p, 0) if which == EARLIEST else self.ends[p]
            for p, which in wanted.items()
            if which in {EARLIEST, LATEST}
        }

    def limit(self):
        """Look, and return the limit of a batch that takes all rows."""
        answers = self.asks.ask([self.task], self.writers, news=True, timeout=1.0)
        self.asks.limit([self.task], answers, timeout=1.0)
        read = {ROWS: self.ends[ROWS]}
        return self.task.times.event_time_limits.at(read, read)[0]["rows"]


def chained():
    """Return a group in which the task's topic is written by way of another repartition topic."""
    group = Group(upstream=[FIRST])
    group.writers = {
        "rows": Writers(((BETWEEN,),), {"between": frozenset([FIRST])}),
        "between": Writers(((FIRST,),)),
    }
    return group


@pytest.fixture
def group():
    return Group()


def test_one_that_is_behind_holds_where_it_is(group):
    group.commit(FAST, 100, 5000)
    group.commit(SLOW, 50, 70)
    assert group.limit() == 70
    assert group.task.times.event_time_limits.unread_since == {"rows": -math.inf}
    group.commit(SLOW, 100, 3000)
    assert group.limit() == 5000, "nobody is behind: what has been written by then counts"
    assert not group.task.times.event_time_limits.unread_since


def test_the_one_that_is_farthest_behind_decides(group):
    group.commit(FAST, 99, 5000)
    group.commit(SLOW, 50, 70)
    assert group.limit() == 70


def test_a_commit_counts_that_is_of_an_input_which_was_the_first_one_then(group):
    """A topic whose name stands in front of the other one has got a partition for the task."""
    group.commit(FAST, 100, 5000)
    group.commit(SLOW, 100, 70)
    new = TopicPartition("first", 1)
    group.writers = {"rows": Writers(((new, FAST), (SLOW,)))}
    group.ends[new] = 0
    assert group.limit() == 5000


def test_one_that_has_never_committed_holds_everything(group):
    group.commit(FAST, 100, 5000)
    assert group.limit() == NO_TIME
    group.starts[SLOW] = 100
    assert group.limit() == 5000, "its partition is empty: records are gone, or never were"


def test_one_that_has_nothing_to_write_holds_nothing_that_was_there_before(group):
    group.commit(FAST, 100, 5000)
    group.commit(SLOW, 100)
    assert group.limit() == 5000
    group.ends[SLOW] = 120
    group.commit(FAST, 110, 6000)
    group.ends[FAST] = 110
    assert group.limit() == 5000, "what has come may be as old as all that came since"
    assert group.task.times.event_time_limits.unread_since == {"rows": 0.0}, "it has only just come"
    group.now = 2.0
    assert group.limit() == 5000
    assert group.task.times.event_time_limits.unread_since == {"rows": 0.0}
    group.commit(SLOW, 120)
    group.ends[SLOW] = 130
    assert group.limit() == 6000, "it gets on: what is unread now came after that"
    group.commit(SLOW, 130)
    assert group.limit() == 6000
    assert not group.task.times.event_time_limits.waiting


def test_of_what_was_there_before_anybody_looked_nothing_says_when_it_came(group):
    """As after a restart: rows of its own behind many that it filters away, say."""
    group.commit(FAST, 100, 5000)
    group.commit(SLOW, 50)
    assert group.limit() == NO_TIME
    assert group.task.times.event_time_limits.unread_since == {"rows": -math.inf}
    group.commit(SLOW, 90)
    assert group.limit() == NO_TIME
    group.commit(SLOW, 95, 70)
    assert group.limit() == 70
    group.commit(SLOW, 100, 80)
    assert group.limit() == 5000


def test_one_that_writes_steadily_holds_even_for_a_moment(group):
    group.commit(FAST, 100, 5000)
    group.commit(SLOW, 99, 4900)
    assert group.limit() == 4900


def test_tasks_further_upstream_hold_as_well():
    group = Group(upstream=[FIRST])
    group.commit(FAST, 100, 5000, limit=80)
    group.commit(SLOW, 100, 4000, limit=70)
    group.commit(FIRST, 60)
    assert group.limit() == 70
    group.commit(FIRST, 100)
    assert group.limit() == 5000
    group.ends[FIRST] = 110
    assert group.limit() == 5000, "what has just come there is later than what these have written"


def test_what_comes_through_another_topic_may_be_older_than_what_was_there():
    """The first task upstream was behind: its rows are older than what others have brought by then."""
    group = chained()
    group.ends[BETWEEN] = 10
    group.commit(FIRST, 50)
    group.commit(BETWEEN, 10, 5000, limit=60)
    assert group.limit() == 60
    group.stands[FIRST] = OffsetAndMetadata(100, "")
    group.ends[BETWEEN] = 20
    assert group.limit() == 60, "what it has just written is unread, and is of its backlog"
    group.commit(BETWEEN, 20, 5000, limit=4000)
    assert group.limit() == 5000
    group.ends[FIRST] = 110
    assert group.limit() == 5000
    group.stands[FIRST] = OffsetAndMetadata(110, "")
    group.ends[BETWEEN] = 30
    assert group.limit() == 5000, "that came later"


def test_what_comes_of_a_backlog_has_not_only_just_come():
    """One long micro-batch reads the last of it, and has written to the topic between meanwhile."""
    group = chained()
    group.ends[BETWEEN] = 0

    def unread_since(now, *, first, written, read):
        group.now, group.ends[BETWEEN] = now, written
        group.commit(FIRST, first, 5000)
        group.commit(BETWEEN, read, 4000)
        group.limit()
        return group.task.times.event_time_limits.unread_since.get("rows")

    assert unread_since(0.0, first=50, written=0, read=0) == -math.inf
    assert unread_since(90.0, first=100, written=60, read=0) == -math.inf, "it comes of the backlog"
    assert unread_since(180.0, first=100, written=60, read=60) is None
    group.ends[FIRST] = 120
    assert unread_since(181.0, first=110, written=60, read=60) == 180.0, "it came after the last look"
    assert unread_since(251.0, first=120, written=80, read=60) == 180.0, "one long micro-batch has read all of it"
    assert unread_since(252.0, first=120, written=80, read=80) is None


def test_a_commit_that_says_nothing_of_times_lets_nobody_go(group):
    """As the first one of a task that begins at the end of its topic, or one that was set by hand."""
    group.commit(FAST, 100, 5000)
    group.stands[SLOW] = OffsetAndMetadata(100, "")
    assert group.limit() == 5000


def test_how_far_a_task_has_come_says_nothing_of_a_topic_without_times():
    """Its rows are as old as those of the slowest task upstream, in any order."""
    group = chained()
    group.writers = {"rows": Writers(((BETWEEN,),), {"between": frozenset([FIRST])}, frozenset(["between"]))}
    group.commit(FIRST, 100)
    group.ends[BETWEEN] = 10
    group.commit(BETWEEN, 10, 4000)
    assert group.limit() == 4000
    group.ends[BETWEEN] = 30
    group.commit(BETWEEN, 20, 5000)
    assert group.limit() == 4000
    group.commit(BETWEEN, 30, 5000)
    assert group.limit() == 5000


def test_silence_is_looked_at_often_and_when_it_counts(group):
    """What comes to the writers is no news to the thread that reads what they write."""
    counting = task_of(
        TaskId(1, 0), (ROWS,), {"w": TopicPartition("log", 0)}, "d", cut={"w"}, timed_topics={"rows"},
        watermark_idle_seconds=60.0,
    )  # fmt: skip
    group.task = counting

    def looks(now):
        group.now = now
        answers = group.asks.ask([counting], group.writers, news=False, timeout=1.0)
        group.asks.limit([counting], answers, timeout=1.0)
        counting.times.event_time_limits.at({ROWS: 40}, {ROWS: 40})
        return answers is not None

    group.commit(FAST, 100, 5000)
    group.commit(SLOW, 100, 4000)
    assert looks(0.0), "the first one"
    counting.times.idle_watermarks.had_input(0.0)
    assert [looks(now) for now in (0.5, 1.0, 1.5, 2.0)] == [False, True, False, True]
    assert [looks(now) for now in (59.5, 59.9, 60.0, 60.1)] == [True, False, True, True], "windows end by silence now"


def test_nobody_is_asked_about_other_topics(group):
    assert group.asks.ask([group.task], {}, news=True, timeout=1.0) is None
    group.asks.limit([group.task], None, timeout=1.0)
    assert group.task.times.event_time_limits.at({}, {ROWS: 40})[0] == {}


def test_nobody_is_asked_again_before_something_has_come(group):
    group.ends |= {FAST: 0, SLOW: 0, ROWS: 0}
    assert group.limit() == NO_TIME, "there are no rows"
    asked = [group.asks.ask([group.task], group.writers, news=news, timeout=1.0) for news in (False, True)]
    assert [answers is None for answers in asked] == [True, False]
    group.ends[SLOW] = 100
    group.limit()
    assert group.asks.ask([group.task], group.writers, news=False, timeout=1.0) is not None, "it waits for somebody"
