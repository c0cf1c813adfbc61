"""The application's part in a rebalance: callbacks, what is given up and what is taken."""

from __future__ import annotations

from sparkrelay.consumer.api.exchanges import blocking
from sparkrelay.consumer.api.rebalance import RebalanceSteps
from sparkrelay.consumer.base.assignor import ClusterView, MemberAssignment, MemberSubscription
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, AssignNeeded, Hold, JoinNeeded, Prepared
from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def run(exchange):
    return blocking(exchange, Mailbox())


class Plain:
    name, supports_cooperative = "x", True

    def __init__(self, story):
        self.story = story

    def subscription_user_data(self, topics):
        self.story.append("user data")
        return b"u"

    def on_assignment(self, assignment, metadata):
        self.story.append("on_assignment")

    def assign(self, cluster, members):
        return {"m1": MemberAssignment((T0,)), "m2": MemberAssignment()}


class App:
    def __init__(self, *, fail=()):
        self.story, self.subscription = [], SubscriptionState()
        self.steps = RebalanceSteps(
            self, self.subscription, [Plain(self.story)], before_revoking=lambda: self.story.append("commit")
        )

        def note(kind):
            def callback(consumer, partitions):
                self.story.append((kind, *partitions))
                if kind in fail:
                    raise ValueError(f"in {kind}")

            return callback

        self.steps.set_callbacks(note("assigned"), note("revoked"), note("lost"))
        self.subscription.assign_from_group([T0])
        self.subscription.release()
        self.answers = []

    def adopt(self, *partitions):
        step = AdoptNeeded(1, "x", MemberAssignment(partitions), None)
        return run(self.steps.adopt(step, self.answers.append))


def test_the_order_of_a_rebalance():
    app = App()
    assert app.adopt(T1) is None
    assert app.story == ["on_assignment", "commit", ("revoked", T0), ("assigned", T1)]
    assert app.answers == [Adopted(1, revoked=True, owned=frozenset({T1}))]
    assert app.subscription.assigned == {T1}


def test_on_assigned_is_called_also_when_nothing_is_new():
    app = App()
    app.adopt(T0)
    assert app.story == ["on_assignment", ("assigned",)]
    assert app.answers == [Adopted(1, revoked=False, owned=frozenset({T0}))]


def test_an_error_in_a_callback_still_answers_and_runs_the_rest():
    """KAFKA-18160, KAFKA-16933."""
    app = App(fail=("revoked", "assigned"))
    error = app.adopt(T1)
    assert str(error) == "in revoked"
    assert ("assigned", T1) in app.story
    assert app.answers == [Adopted(1, revoked=True, owned=frozenset({T1}))]
    assert app.subscription.assigned == {T1}


def test_an_interrupt_in_a_callback_still_answers():
    app = App()

    def interrupted(consumer, partitions):
        raise KeyboardInterrupt

    app.steps.set_callbacks(None, interrupted, None)
    assert isinstance(app.adopt(T1), KeyboardInterrupt)
    assert app.answers == [Adopted(1, revoked=True, owned=frozenset({T1}))]
    assert app.subscription.assigned == {T1}


def test_new_partitions_are_not_fetched_before_the_callback_returned():
    app, seen = App(), []
    app.subscription.seek(T0, 0)

    def assigned(consumer, partitions):
        app.subscription.seek(T1, 0)
        seen.append(dict(app.subscription.fetchable()))

    app.steps.set_callbacks(assigned, None, None)
    app.adopt(T0, T1)
    assert seen == [{T0: 0}]
    assert app.subscription.fetchable() == {T0: 0, T1: 0}


def test_preparing_gives_up_what_the_step_says():
    for hold, dropped, story, owned in (
        (Hold.KEEP, (), ["user data"], {T0}),
        (Hold.KEEP, ("t",), ["commit", ("revoked", T0), "user data"], set()),
        (Hold.REVOKE, (), ["commit", ("revoked", T0), "user data"], set()),
        (Hold.LOSE, (), [("lost", T0), "user data"], set()),
    ):
        app = App()
        step = JoinNeeded(7, hold, frozenset({"t"}), frozenset(dropped))
        assert run(app.steps.prepare(step, app.answers.append)) is None
        assert app.story == story
        assert app.answers == [Prepared(7, frozenset(owned), {"x": b"u"})]


def test_lost_partitions_go_to_on_revoked_without_on_lost():
    app = App()
    app.steps.set_callbacks(None, lambda _, p: app.story.append(("revoked", *p)), None)
    run(app.steps.prepare(JoinNeeded(7, Hold.LOSE, frozenset(), frozenset()), app.answers.append))
    assert app.story[0] == ("revoked", T0)


def test_an_assignment_that_takes_and_gives_at_once_is_refused():
    app = App()
    members = {"m1": MemberSubscription(frozenset({"t"})), "m2": MemberSubscription(frozenset({"t"}), frozenset({T0}))}
    error = app.steps.assign(AssignNeeded(3, "x", ClusterView({"t": (0, 1)}), members), app.answers.append)
    assert "gives t-0 to m1 while m2 still holds it" in str(error)
    assert app.answers[0].error is error


def test_nothing_new_is_assigned_to_a_member_that_was_expelled_while_it_gave_up_partitions():
    subscription, story = SubscriptionState(), []
    subscription.subscribe(["t"])
    steps = RebalanceSteps(subscription, subscription, [], before_revoking=lambda: None)
    step = AdoptNeeded(1, "", type("Given", (), {"partitions": (T1,)})(), None)

    def revoked(_, partitions):
        story.append(("revoked", partitions))
        step.cancelled = True

    steps.set_callbacks(lambda _, p: story.append(("assigned", p)), revoked, None)
    subscription.assign_from_group([T0])
    answers = []
    assert blocking(steps.adopt(step, answers.append), Mailbox()) is None
    assert story == [("revoked", [T0])]
    assert subscription.assigned == frozenset()
    assert answers == [Adopted(1, revoked=True)]
