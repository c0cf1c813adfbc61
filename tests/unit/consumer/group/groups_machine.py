"""What can happen to a group of members under either protocol: Hypothesis plays network, broker and applications."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

SOMEBODY = precondition(lambda self: self.members)


class GroupsMachine(RuleBasedStateMachine):
    """Members that join, work and fail. A protocol's machine has its coordinator, its members and what else happens.

    A member has `membership`, `subscription`, `closed` and `counted`, and `send(now)`, `deliver()`, `serve(now)`,
    `lose_connection(now)` and `close()`.
    """

    #: Seconds that a quick round takes.
    ROUND_SECONDS = 0.0

    def __init__(self, coordinator):
        super().__init__()
        self.coordinator, self.members, self.now = coordinator, [], 0.0

    def turn(self, member):
        """Run one round of a member whose network and application are quick; return whether anything happened."""
        raise NotImplementedError

    def member(self, index):
        return self.members[index % len(self.members)]

    @SOMEBODY
    @rule(rounds=st.integers(1, 12), without=st.none() | st.integers(0, 3))
    def run_quickly(self, rounds, without):
        """All members make progress, or all but one."""
        for _ in range(rounds):
            self.now += self.ROUND_SECONDS
            for index, member in enumerate(self.members):
                if index != without:
                    self.turn(member)
                    self.nothing_is_held_twice()

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def send(self, index):
        self.member(index).send(self.now)

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def deliver(self, index):
        self.member(index).deliver()

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def serve(self, index):
        member = self.member(index)
        if not member.closed:
            member.membership.polled(self.now)
            member.serve(self.now)

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def lose_connection(self, index):
        """Requests under way are lost; the broker may have acted on them."""
        self.member(index).lose_connection(self.now)

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def expel(self, index):
        self.coordinator.remove(self.member(index).membership.metadata.member_id)

    @SOMEBODY
    @rule(index=st.integers(0, 3))
    def stop_polling(self, index):
        """The application does not poll for so long that the member leaves."""
        self.member(index).membership._polled_at = self.now - 301

    @precondition(lambda self: len(self.members) > 1)
    @rule(index=st.integers(0, 3))
    def close(self, index):
        member = self.member(index)
        if not member.closed:
            member.close()

    @invariant()
    def nothing_is_held_twice(self):
        held = [p for m in self.members if m.counted for p in m.subscription.assigned]
        assert len(held) == len(set(held)), [
            (m.membership.metadata, m.membership.state, m.subscription.assigned) for m in self.members
        ]


def counted(coordinator, membership):
    """Return whether the coordinator would accept a member's commits."""
    place = membership.metadata
    return place.generation >= 0 and place.member_id in coordinator.members
