"""Which way a micro-batch takes, and when the resident job is begun and ended."""

import pytest
from hypothesis import given, strategies as st

from sparkrelay.runtime.batch import residency
from sparkrelay.runtime.batch.residency import _BACKLOG, _IN_A_ROW, _SMALL, Choice, Residency
from sparkrelay.runtime.compile.prepared_legs import ResidentLegs
from sparkrelay.runtime.spark.jobs import JobCancelled, JobFailed

FRAME = object()


class Plans:
    def __init__(self, *legs, refused=None):
        self.asked = 0
        self.legs = ResidentLegs(FRAME if legs else None, dict.fromkeys(legs, 2), refused or {})

    def resident(self):
        self.asked += 1
        return self.legs


class Target:
    def __init__(self, slots):
        self.slots, self.held = slots, 0

    def hold_slots(self, count):
        if self.held + count >= self.slots:
            return False
        self.held += count
        return True

    def free_slots(self, count):
        self.held -= count


class Jobs:
    def __init__(self, slots=9):
        self.target = Target(slots)


@pytest.fixture
def made(monkeypatch):
    """The resident jobs that were made; `made.fails` has the next one fail to open."""

    class Made(list):
        fails = None

    jobs = Made()

    class Job:
        over = False
        closed = None

        def __init__(self, _, frame, steps):
            assert frame is FRAME
            self.legs = frozenset(steps)
            jobs.append(self)

        def open(self, seconds, due):
            if jobs.fails is not None:
                raise jobs.fails

        def close(self, *, cancel=False):
            assert self.closed is None
            self.closed = "cancelled" if cancel else "ended"

    monkeypatch.setattr(residency, "ResidentJob", Job)
    return jobs


@pytest.fixture
def begin(clock):
    def make(slots=9):
        return Residency(Jobs(slots), over=lambda: False, clock=clock)

    return make


@pytest.fixture
def clock():
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    return Clock()


def small_ones(kept, plans, legs=("a",), count=_IN_A_ROW):
    return [kept.job_for(plans, legs, 10) for _ in range(count)][-1]


def test_a_few_small_ones_in_a_row_begin_a_job_that_stays(begin, made):
    kept, plans = begin(), Plans("a", "b")
    assert [kept.job_for(plans, ["a"], 10) for _ in range(_IN_A_ROW - 1)] == [None] * (_IN_A_ROW - 1)
    assert plans.asked == 0, "nothing is built before it is wanted"
    assert kept.why_bulk == "the first small ones behind a backlog"
    job = kept.job_for(plans, ["a"], _SMALL)
    assert job is made[0]
    assert kept.job_for(plans, ["b"], _BACKLOG) is job, "the next one may be larger"
    assert kept._jobs.target.held == 2
    assert kept.why_bulk == ""


def test_a_backlog_ends_it_and_small_ones_begin_another(begin, made):
    kept, plans = begin(), Plans("a")
    first = small_ones(kept, plans)
    assert kept.job_for(plans, ["a"], _BACKLOG + 1) is None
    assert first.closed == "ended"
    assert kept.why_bulk == "50,001 records"
    assert kept._jobs.target.held == 0
    assert small_ones(kept, plans) is made[1]


def test_legs_that_cannot_stay_have_the_whole_micro_batch_take_the_other_way(begin, made):
    kept, plans = begin(), Plans("a", refused={"b": "f() is a Python function"})
    assert small_ones(kept, plans, ["a", "b"]) is None
    assert made == []
    assert kept.why_bulk == "leg b: f() is a Python function"
    job = kept.job_for(plans, ["a"], 1)
    assert job is made[0], "those without that leg stay"
    assert kept.job_for(plans, ["a", "b"], 1) is None
    assert job.closed == "ended"


def test_without_a_slot_to_spare_nothing_stays(begin, made):
    kept = begin(slots=2)
    assert small_ones(kept, Plans("a", "b")) is None
    assert made == []
    assert kept.why_bulk == "no Spark slot is free for a resident job of 2"
    assert kept._jobs.target.held == 0


def test_a_job_that_ended_by_itself_is_replaced(begin, made):
    kept, plans = begin(), Plans("a")
    small_ones(kept, plans).over = True
    assert kept.job_for(plans, ["a"], 1) is made[1]
    assert made[0].closed == "ended"


def test_a_failure_ends_it_and_a_second_one_leaves_it_alone_for_a_while(begin, made, clock):
    kept, plans = begin(), Plans("a")
    for number in range(2):
        small_ones(kept, plans)
        with pytest.raises(JobFailed), kept.watched():
            raise JobFailed("user code")
        assert made[number].closed == "cancelled"
    assert small_ones(kept, plans) is None
    assert kept.why_bulk == "the resident job has failed, and is left alone for 5 s"
    clock.now += residency._FIRST_PAUSE + 1
    assert small_ones(kept, plans) is made[2]
    with kept.watched():
        pass
    assert made[2].closed is None


def test_one_that_was_cancelled_for_tasks_that_leave_is_no_failure(begin, made):
    kept, plans = begin(), Plans("a")
    for _ in range(5):
        small_ones(kept, plans, count=_IN_A_ROW)
        with pytest.raises(JobCancelled), kept.watched():
            raise JobCancelled("tasks leave")
    assert len(made) == 5


def test_one_that_does_not_begin_gives_its_slots_back_and_is_tried_again_after_a_while(begin, made, clock):
    kept, plans = begin(), Plans("a")
    made.fails = JobFailed("no core is free")
    assert small_ones(kept, plans) is None
    assert kept._jobs.target.held == 0
    made.fails = None
    assert small_ones(kept, plans) is None
    clock.now += residency._FIRST_PAUSE_IN_VAIN
    assert small_ones(kept, plans) is made[1]


def test_after_a_minute_without_a_micro_batch_it_is_ended(begin, made, clock):
    kept, plans = begin(), Plans("a")
    job = small_ones(kept, plans)
    clock.now += residency._IDLE_SECONDS - 1
    kept.rest()
    assert job.closed is None
    clock.now += 2
    kept.rest()
    assert job.closed == "ended"
    kept.close()


@given(st.lists(st.tuples(st.integers(0, 2 * _BACKLOG), st.booleans()), max_size=40))
def test_no_backlog_is_sent_through_one_core(batches):
    choice, open_ = Choice(), False
    for number, (records, fails) in enumerate(batches):
        open_ = choice.resident(records, float(number), open_=open_)
        assert not (open_ and records > _BACKLOG)
        if open_ and fails:
            choice.failed(float(number))
            open_ = False
        elif open_:
            choice.passed()
