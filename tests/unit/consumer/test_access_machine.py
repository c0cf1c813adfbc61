"""Many threads or tasks call, lend, return early and end in any order: a model says what must happen."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkrelay.consumer.access import AccessControl
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

    @rule(actor=actors)
    def call(self, actor):
        self.act(actor)
        allowed = not self.stack or self.stack[-1] is self.carried[actor]
        try:
            key = self.access.acquire()
        except ConcurrentModificationError:
            assert not allowed
            return
        assert allowed
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
        block.__enter__()
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
        on_top = self.stack[-1] is thing
        try:
            self.access.release(thing)
        except AccessKeyError:
            assert not on_top
        else:
            assert on_top
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
        try:
            self.access.check()
        except AccessKeyError:
            assert not mine
        else:
            assert mine
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
                except ConcurrentModificationError:
                    assert not may
                else:
                    assert may
                    self.access.release(key)

    def teardown(self):
        for actor in ACTORS:
            while self.frames[actor]:
                self.end(actor)
        assert self.stack == []
        self.act(0)
        self.access.release(self.access.acquire())


TestKeyStack = KeyStack.TestCase
TestKeyStack.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
