"""Many threads or tasks call, lend, return early and end in any order: a model says what must happen."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkrelay.consumer.api.access import AccessControl
from sparkrelay.errors import AccessKeyError, ConcurrentModificationError

ACTORS = range(4)
actors = st.sampled_from(ACTORS)


class Actors:
    """Carriers that a test switches between."""

    hint = ""

    def __init__(self):
        self.now, self.keys = 0, {}

    def me(self):
        return self.now

    def get(self, holder):
        return self.keys.get(holder)

    def put(self, holder, key):
        self.keys[holder] = key

    def has_ended(self, holder):
        return False


class KeyStack(RuleBasedStateMachine):
    """Each actor has frames: calls (with their key) and ``with access(key)`` blocks, ended last in, first out."""

    def __init__(self):
        super().__init__()
        self.carriers = Actors()
        self.access = AccessControl(self.carriers)
        self.stack = []  # keys of calls under way, as KIP-944 has it
        self.carried = dict.fromkeys(ACTORS)
        self.frames = {actor: [] for actor in ACTORS}
        self.known = []  # keys that somebody has seen

    def act(self, actor):
        self.carriers.now = actor

    def refusal(self, actor):
        """What a call raises: nobody but who carries the top key may call, or anybody when no call is under way."""
        carried = self.carried[actor]
        if carried is (self.stack[-1] if self.stack else None):
            return None
        if carried not in self.stack and any(
            kind == "lend" and thing.key is carried for kind, thing, _ in self.frames[actor]
        ):
            return AccessKeyError
        return ConcurrentModificationError if self.stack else None

    def guests(self, key):
        """Who is in a block with a key, but for who made the key."""
        return [
            actor
            for actor, frames in self.frames.items()
            if actor != key.holder and any(kind == "lend" and thing.key is key for kind, thing, _ in frames)
        ]

    @rule(actor=actors)
    def call(self, actor):
        self.act(actor)
        if (refusal := self.refusal(actor)) is not None:
            with pytest.raises(refusal):
                self.access.acquire()
            return
        key = self.access.acquire()
        self.frames[actor].append(("call", key, self.carried[actor]))
        self.stack.append(key)
        self.known.append(key)
        self.carried[actor] = key

    @rule(actor=actors, index=st.integers(0, 50))
    def lend(self, actor, index):
        if not self.known:
            return
        self.act(actor)
        key = self.known[index % len(self.known)]
        block = self.access.lend(key)
        try:
            block.__enter__()
        except AccessKeyError:
            assert key not in self.stack
            return
        assert key in self.stack
        self.frames[actor].append(("lend", block, self.carried[actor]))
        self.carried[actor] = key

    @rule(actor=actors)
    def end(self, actor):
        if not self.frames[actor]:
            return
        self.act(actor)
        kind, thing, before = self.frames[actor].pop()
        self.carried[actor] = before
        if kind == "lend":
            thing.__exit__(None, None, None)
            return
        alone = self.stack[-1] is thing and not self.guests(thing)
        try:
            self.access.release(thing)
        except AccessKeyError:
            assert not alone
        else:
            assert alone
        self.stack.remove(thing)

    @rule(actor=actors, index=st.integers(0, 50), nothing=st.booleans())
    def set_thread_access_key(self, actor, index, nothing):
        if not self.known:
            return
        self.act(actor)
        key = None if nothing else self.known[index % len(self.known)]
        self.access.key = key
        self.carried[actor] = key

    @rule(actor=actors)
    def check(self, actor):
        self.act(actor)
        if not any(kind == "call" for kind, *_ in self.frames[actor]):
            return
        mine = bool(self.stack) and self.stack[-1].holder == actor
        alone = mine and not self.guests(self.stack[-1])
        try:
            self.access.check()
        except AccessKeyError:
            assert not alone
        else:
            assert alone
        if mine:
            self.carried[actor] = self.stack[-1]

    @invariant()
    def the_stack_is_the_models(self):
        assert self.access._stack == self.stack

    @invariant()
    def everybody_carries_what_the_model_says(self):
        for actor in ACTORS:
            assert self.carriers.get(actor) is self.carried[actor]

    @invariant()
    def at_most_those_with_the_top_key_may_call(self):
        if self.stack:
            for actor in ACTORS:
                self.act(actor)
                may = self.carried[actor] is self.stack[-1]
                try:
                    key = self.access.acquire()
                except (AccessKeyError, ConcurrentModificationError):
                    assert not may
                else:
                    assert may
                    self.access.release(key)

    def teardown(self):
        for actor in ACTORS:
            while self.frames[actor]:
                self.end(actor)
        assert self.stack == []
        assert self.access._inside == []
        self.act(0)
        self.access.release(self.access.acquire())


TestKeyStack = KeyStack.TestCase
TestKeyStack.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
