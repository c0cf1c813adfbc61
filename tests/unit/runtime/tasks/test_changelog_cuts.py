"""Where changelogs of windows that end may be cut: never in front of anything that a restore needs."""

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from sparkrelay.runtime.tasks.changelog_cuts import ChangelogCuts
from sparkrelay.state import Marker, TaskStore
from sparkrelay.state.window_keys import end_bytes, end_of, over
from sparkrelay.types import TopicPartition

CHANGELOG = TopicPartition("app-counts-changelog", 0)
SIZE = 10


def test_a_changelog_is_cut_once_its_last_window_is_over():
    cuts = ChangelogCuts()
    cuts.committed(CHANGELOG, 0, expired=5, last_end=10)
    cuts.committed(CHANGELOG, 100, expired=9, last_end=10)
    assert cuts.before == {}
    cuts.committed(CHANGELOG, 200, expired=12, last_end=20)
    assert cuts.before == {CHANGELOG: 100}
    cuts.committed(CHANGELOG, 300, expired=30, last_end=30)
    assert cuts.before == {CHANGELOG: 300}


def test_a_window_far_ahead_holds_everything_behind_it_back():
    cuts = ChangelogCuts()
    cuts.committed(CHANGELOG, 0, expired=5, last_end=1_000)
    for number in range(1, 9):
        cuts.committed(CHANGELOG, number, expired=10 * number, last_end=1_000)
    assert cuts.before == {}
    cuts.committed(CHANGELOG, 20, expired=1_000, last_end=1_010)
    assert cuts.before == {CHANGELOG: 8}


@given(
    st.lists(st.lists(st.integers(0, 200), max_size=4), max_size=30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from([0, 25, 70]),
)
def test_what_is_cut_has_expired(batches, delay, taken_over_at, retention):
    """Each batch appends a record for each window it changes, then its marker; an owner may begin anywhere."""
    cuts, log, kept, watermark, expired = ChangelogCuts(), [], set(), -1, -1
    for number, times in enumerate(batches):
        end = len(log)
        before = watermark
        windows = {time // SIZE * SIZE + SIZE for time in times if time // SIZE * SIZE + SIZE > before}
        watermark = max([before, *(time - delay for time in times)])
        kept = {window for window in kept if window > expired} | windows
        expired = max(expired, watermark - retention)
        log += [*sorted(windows), None]
        if number == taken_over_at:
            cuts = ChangelogCuts()
        cuts.committed(CHANGELOG, end, expired=expired, last_end=max(kept, default=-1 << 62))
        cut = cuts.before.get(CHANGELOG, 0)
        assert all(window is None or window <= expired for window in log[:cut])
        assert None in log[cut:]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([-9, 1, 2, 5, 8, 13, 1 << 62]))))
def test_no_batch_hides_what_another_one_allows(batches):
    """A store that had a variable, which ends never, and has none any more, is cut as one that never had."""
    cuts, end, expired, pairs, allowed = ChangelogCuts(), 0, 0, [], 0
    for records, step, last_end in batches:
        end, expired = end + records, expired + step
        pairs.append((end, last_end))
        cuts.committed(CHANGELOG, end, expired=expired, last_end=last_end)
        allowed = max([allowed, *(offset for offset, last in pairs if last <= expired)])
        assert cuts.before.get(CHANGELOG, 0) == allowed
        waiting = cuts._waiting[CHANGELOG]
        assert len(waiting) <= len({last for _, last in pairs if last > expired}), "none that waits for nothing new"


NEVER = 1 << 62


class Copy:
    """A store that follows a changelog, of which the beginning may be gone."""

    def __init__(self, path):
        self.store = TaskStore.open(path)

    def follow(self, log, first):
        at = self.store.header.changelog.get(CHANGELOG, 0)
        if at < first:
            self.store.restore_anew("s", CHANGELOG, first)
        rows = [record for record in log[max(at, first) :] if not isinstance(record, Marker)]
        keys, values = (pa.array([row[part] for row in rows], pa.binary()) for part in range(2))
        self.store.restore("s", CHANGELOG, keys, values, len(log), log[-1])

    def shown(self):
        start = over(self.store.header.expired_by("s"))
        return {
            (end_of(key), key[8:]): value
            for batch in self.store.scan("s", start=start)
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        }


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            # Entries of a window, or of none, that are written or deleted.
            st.dictionaries(st.sampled_from([10, 20, 40, NEVER]), st.booleans(), max_size=3),
            st.sampled_from([0, 10]),
            st.sampled_from([0, 0, 15]),
            st.sampled_from([True, True, False]),
            st.sets(st.integers(0, 1)),
        ),
        min_size=3,
        max_size=12,
    )
)
def test_every_copy_shows_the_owners_rows_however_old_it_is(batches):
    """The owner may have deleted what a copy has before it was over, and with a retention windows show beyond that."""
    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(2)]
        cuts, log, held, watermark, expired = ChangelogCuts(), [], {}, 0, 0
        for number, (changes, step, retention, is_cut, following) in enumerate(batches):
            end, value = len(log), b"%d" % number
            held = {entry: value for entry, value in held.items() if entry[0] > expired}
            for ends, written in changes.items():
                if ends > watermark and (written or (ends, b"a") in held):
                    held.pop((ends, b"a"), None)
                    held |= {(ends, b"a"): value} if written else {}
                    log.append((end_bytes(ends) + b"a", value if written else None))
            watermark += step
            expired = max(expired, watermark - retention)
            log.append(Marker(number + 1, {}, "", watermark, expired))
            last_end = max((ends for ends, _ in held), default=-1 << 62)
            cuts.committed(CHANGELOG, end, expired=expired, last_end=last_end)
            first = cuts.before.get(CHANGELOG, 0) if is_cut else 0
            shown = {entry: value for entry, value in held.items() if entry[0] > expired}
            fresh = Copy(Path(folder) / f"fresh{number}")
            for copy in [fresh, *(copies[which] for which in following)]:
                copy.follow(log, first)
                assert copy.shown() == shown
            fresh.store.close(clean=False)
        for copy in copies:
            copy.store.close(clean=False)
