"""Fetch sessions (KIP-227): what a request says, and that broker and consumer never differ about what is read."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.fetch_session import Asked, FetchSession, fetch_request
from sparkrelay.types import TopicPartition

ID, OTHER_ID = uuid.uuid4(), uuid.uuid4()
T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


def at(offset, topic_id=ID, epoch=0, size=100):
    return Asked(offset, epoch, size, topic_id)


def said(session_id=7, error_code=0):
    return SimpleNamespace(session_id=session_id, error_code=error_code)


@pytest.fixture
def session():
    """A session of T0 and T1 that the broker has granted."""
    session = FetchSession()
    assert session.change({T0: at(5), T1: at(6)}) == (0, 0, {T0: at(5), T1: at(6)}, {})
    assert session.answered(said())
    return session


def test_an_unchanged_request_says_nothing(session):
    assert session.change({T0: at(5), T1: at(6)}) == (7, 1, {}, {})
    session.answered(said())
    assert session.change({T0: at(5), T1: at(6)}) == (7, 2, {}, {})


def test_changed_new_and_forgotten_partitions_are_named(session):
    assert session.change({T0: at(9), T2: at(0)}) == (7, 1, {T0: at(9), T2: at(0)}, {T1: at(6)})
    session.answered(said())
    assert session.change({T0: at(9), T2: at(0)}) == (7, 2, {}, {})


@pytest.mark.parametrize("changed", [at(5, epoch=1), at(5, size=200)])
def test_leader_epoch_and_size_are_part_of_what_is_asked(session, changed):
    assert session.change({T0: changed, T1: at(6)}).asked == {T0: changed}


def test_a_topic_made_again_is_forgotten_and_added(session):
    change = session.change({T0: at(0, OTHER_ID), T1: at(6)})
    assert change == (7, 1, {T0: at(0, OTHER_ID)}, {T0: at(5)})
    assert session.names == {ID: "t", OTHER_ID: "t"}


def test_a_broker_without_room_for_a_session_is_asked_again_each_time():
    session = FetchSession()
    session.change({T0: at(5)})
    session.answered(said(0))
    assert session.change({T0: at(5)}) == (0, 0, {T0: at(5)}, {})


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
        (ErrorCode.INCONSISTENT_TOPIC_ID, 7),
    ],
)
def test_a_refused_request_is_followed_by_a_full_one(session, code, session_id):
    session.change({T0: at(5)})
    assert not session.answered(said(0, code))
    # With the old id, so that the broker drops the old session; without, if it has none.
    assert session.change({T0: at(5)}) == (session_id, 0, {T0: at(5)}, {})


def test_after_a_lost_answer_everything_is_said_again(session):
    session.change({T0: at(9), T1: at(6)})
    session.lost()
    assert session.change({T0: at(9), T1: at(6)}) == (7, 0, {T0: at(9), T1: at(6)}, {})


def test_a_session_that_the_broker_ended_is_made_anew(session):
    session.change({T0: at(5)})
    assert session.answered(said(0))
    assert session.change({T0: at(5)}) == (0, 0, {T0: at(5)}, {})


def test_an_answer_of_another_session_is_not_trusted(session):
    session.change({T0: at(5)})
    session.answered(said(8))
    assert session.change({T0: at(5)}).epoch == 0


def test_names_and_ids_are_not_mixed_in_one_session(session):
    change = session.change({T0: at(5, None), T1: at(6)})
    assert (change.session_id, change.epoch, set(change.asked)) == (7, 0, {T0, T1})


def test_a_session_by_names_has_none_of_its_requests_go_by_ids():
    """Also one that names nothing: a broker refuses it (FETCH_SESSION_TOPIC_ID_ERROR)."""
    session = FetchSession()
    versions = []
    for _ in range(2):
        change = session.change({T0: at(5, None)})
        request = fetch_request(
            change, by_name=session.by_name, max_wait_ms=0, min_bytes=1, max_bytes=1, read_committed=True, min_version=7
        )
        versions.append(request._max_version)
        session.answered(said())
    assert change.asked == {}
    assert versions == [12, 12]


def test_epochs_wrap_to_one(session):
    session._epoch = (1 << 31) - 1
    session.change({})
    session.answered(said())
    assert session.change({}).epoch == 1


class Broker:
    """What Kafka does with a fetch request, as far as sessions go."""

    def __init__(self):
        self.sessions, self.next_id = {}, 1

    def take(self, change):
        """Return the answer and what would be read."""
        if change.epoch == 0:
            self.sessions.pop(change.session_id, None)
            session_id, self.next_id = self.next_id, self.next_id + 1
            self.sessions[session_id] = [1, dict(change.asked)]
            return said(session_id), dict(change.asked)
        if change.session_id not in self.sessions:
            return said(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND), None
        known = self.sessions[change.session_id]
        if known[0] != change.epoch:
            return said(0, ErrorCode.INVALID_FETCH_SESSION_EPOCH), None
        for partition, asked in change.forgotten.items():
            assert known[1].pop(partition).topic_id == asked.topic_id
        known[1].update(change.asked)
        known[0] += 1
        return said(change.session_id), dict(known[1])


class Sessions(RuleBasedStateMachine):
    """Requests, lost requests, lost answers and evictions in any order: what is read is what is wanted."""

    def __init__(self):
        super().__init__()
        self.broker, self.session, self.lost = Broker(), FetchSession(), 0

    wanted = st.dictionaries(
        st.sampled_from([T0, T1, T2]), st.builds(at, st.integers(0, 3), st.sampled_from([ID, OTHER_ID])), max_size=3
    )

    @rule(wanted=wanted)
    def fetch(self, wanted):
        answer, read = self.broker.take(self.session.change(wanted))
        if self.session.answered(answer):
            assert read == wanted
        else:
            answer, read = self.broker.take(self.session.change(wanted))
            assert self.session.answered(answer)
            assert read == wanted

    @rule(wanted=wanted)
    def lose_request(self, wanted):
        self.session.change(wanted)
        self.session.lost()

    @rule(wanted=wanted)
    def lose_answer(self, wanted):
        change = self.session.change(wanted)
        self.broker.take(change)
        self.session.lost()
        self.lost += change.epoch == 0  # its number never reached us; the broker forgets it in time

    @rule()
    def evict(self):
        self.broker.sessions.clear()
        self.lost = 0

    @invariant()
    def no_sessions_are_left_behind(self):
        assert len(self.broker.sessions) <= 1 + self.lost


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
