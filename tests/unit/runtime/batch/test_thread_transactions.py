"""A stream thread's transactions: lent, committed as a member of the group, aborted, and opened anew."""

from collections import Counter

import pytest

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.errors import CommitFailedException, ProducerFencedException, TimeoutException
from sparkrelay.runtime.batch.thread_transactions import ThreadTransactions, TransactionKey
from sparkrelay.runtime.contract.owners import Owner
from sparkrelay.types import TopicPartition

FIRST, SECOND = TransactionKey(0, 0), TransactionKey(0, 1)
INPUT = TopicPartition("orders", 0)
OLD, NEW = GroupMetadata("app", 1, "me"), GroupMetadata("app", 2, "me")


class Coordinator:
    """Ends every transaction, but for what the test says: an error an id, or generations that are over."""

    def __init__(self):
        self.epochs = Counter()
        self.errors, self.over, self.silent = {}, set(), False
        self.opened, self.committed, self.aborted = [], [], []

    def init(self, names, *, transaction_timeout_ms):
        assert transaction_timeout_ms == 60_000
        if self.silent:
            raise TimeoutException("no answer")
        self.opened += names
        self.epochs.update(names)
        return {name: self._identity(name) for name in names}

    def commit(self, offsets, group_id, *, member, notes):
        assert group_id == "app"
        if member.generation in self.over:
            return {one.transactional_id: CommitFailedException(f"generation {member.generation}") for one in offsets}
        self.committed += [(one.transactional_id, member.generation, dict(some)) for one, some in offsets.items()]
        return self._ended(offsets)

    def abort(self, identities, group_id):
        self.aborted += [one.transactional_id for one in identities]
        return self._ended(identities)

    def _ended(self, identities):
        answers = {}
        for one in identities:
            assert one == self._identity(one.transactional_id), "an old epoch"
            name = one.transactional_id
            self.epochs[name] += 1
            answers[name] = self.errors.get(name) or self._identity(name)
        return answers

    def _identity(self, name):
        return ProducerIdentity(name, 1, self.epochs[name])


class Members:
    """The thread's memberships, one after the other."""

    def __init__(self, *members):
        self.left = list(members)

    def member(self, but=None, *, seconds=0.0):
        if but is not None:
            assert self.left[0] == but
            assert 0 < seconds <= 10
            del self.left[0]
        return self.left[0] if self.left else None


@pytest.fixture
def coordinator():
    return Coordinator()


@pytest.fixture
def transactions(coordinator):
    """`transactions(*members)`: of a thread that is in the group as the first of them, then as the next one."""
    return lambda *members: ThreadTransactions(
        coordinator, "app", Owner("p-0", 2), Members(*(members or [OLD])), timeout_ms=60_000
    )


def test_all_are_opened_before_the_thread_has_tasks(transactions, coordinator):
    own = transactions()
    own.open([0, 3])
    assert coordinator.opened == ["app-p-0-0-0", "app-p-0-0-1", "app-p-0-3-0", "app-p-0-3-1"]
    lent = own.lend([FIRST, TransactionKey(3, 1)])
    assert [one.transactional_id for one in lent.values()] == ["app-p-0-0-0", "app-p-0-3-1"]
    assert len(coordinator.opened) == 4


def test_each_transaction_gets_the_next_epoch(transactions, coordinator):
    own = transactions()
    for epoch in (1, 2, 3):
        assert own.lend([FIRST])[FIRST].epoch == epoch
        assert own.commit({FIRST: {INPUT: epoch}}, notes={}) == {FIRST: None}
    assert own.abort([FIRST]) == {FIRST: None}
    assert own.lend([FIRST])[FIRST].epoch == 5
    assert coordinator.committed[0] == ("app-p-0-0-0", 1, {INPUT: 1})


@pytest.mark.parametrize("error", [TimeoutException("no answer"), ProducerFencedException("another owner")])
def test_what_may_not_have_ended_is_opened_anew_at_once(transactions, coordinator, error):
    """Tasks are initialized again then, and wait until it is decided."""
    own = transactions()
    own.lend([FIRST, SECOND])
    coordinator.errors = {"app-p-0-0-0": error}
    assert own.commit({FIRST: {INPUT: 1}, SECOND: {}}, notes={}) == {FIRST: error, SECOND: None}
    assert coordinator.opened == ["app-p-0-0-0", "app-p-0-0-1", "app-p-0-0-0"]
    coordinator.errors = {}
    own.lend([FIRST, SECOND])
    assert own.abort([FIRST, SECOND]) == {FIRST: None, SECOND: None}


def test_what_cannot_be_opened_anew_now_is_opened_before_anything_is_lent(transactions, coordinator):
    own = transactions()
    own.lend([FIRST, SECOND])
    coordinator.errors, coordinator.silent = {"app-p-0-0-0": TimeoutException("no answer")}, True
    own.abort([FIRST])
    with pytest.raises(TimeoutException):
        own.lend([SECOND])
    coordinator.silent = False
    own.lend([SECOND])
    assert coordinator.opened[2:] == ["app-p-0-0-0"]


def test_a_generation_that_is_over_is_no_failure_while_the_thread_is_in_the_group(transactions, coordinator):
    own = transactions(OLD, NEW)
    own.lend([FIRST])
    coordinator.over = {OLD.generation}
    assert own.commit({FIRST: {INPUT: 1}}, notes={}) == {FIRST: None}
    assert coordinator.committed == [("app-p-0-0-0", NEW.generation, {INPUT: 1})]
    assert coordinator.aborted == []


@pytest.mark.parametrize("members", [(OLD,), (OLD, NEW)])
def test_who_is_in_the_group_no_more_commits_nothing(transactions, coordinator, members):
    own = transactions(*members)
    own.lend([FIRST])
    coordinator.over = {OLD.generation, NEW.generation}
    outcomes = own.commit({FIRST: {INPUT: 1}}, notes={})
    assert isinstance(outcomes[FIRST], CommitFailedException)
    assert (coordinator.committed, coordinator.aborted) == ([], ["app-p-0-0-0"])
    assert own.lend([FIRST])[FIRST].epoch == 2


def test_who_was_expelled_since_the_batch_began_does_not_even_ask(coordinator):
    own = ThreadTransactions(coordinator, "app", Owner("p-0", 1), Members(), timeout_ms=60_000)
    own.lend([FIRST])
    outcomes = own.commit({FIRST: {INPUT: 1}}, notes={})
    assert "expelled this member since the micro-batch began" in str(outcomes[FIRST])
    assert (coordinator.committed, coordinator.aborted) == ([], ["app-p-0-0-0"])
