"""Where changelogs of windows that end may be cut: never in front of anything that a restore needs."""

from hypothesis import given, strategies as st

from sparkrelay.runtime.tasks.changelog_cuts import ChangelogCuts
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
