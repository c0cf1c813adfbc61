import lmdb
import pytest
from bench.flat import _slice, spread_percent, stored
from bench.windows import WindowWorkload


def test_a_state_is_what_all_tasks_hold_of_the_store(tmp_path):
    for task, rows in (("0_0", 3), ("0_1", 2000)):
        (tmp_path / "app" / task).mkdir(parents=True)
        with lmdb.open(str(tmp_path / "app" / task), max_dbs=8) as environment:
            for name in (b"s:windows", b"s:another"):
                with environment.begin(write=True, db=environment.open_db(name)) as transaction:
                    for number in range(rows):
                        transaction.put(b"%06d" % number, bytes(25))
    found = stored(tmp_path, "windows")
    assert found["rows"] == 2003
    assert 2003 * 31 < found["bytes"] < 2003 * 31 * 4
    assert stored(tmp_path, "missing") == {"rows": 0, "bytes": 0}


def test_the_slices_of_a_window_have_every_user_twice():
    (users, *_) = WindowWorkload(records=400, keys=400).users()
    written = [user for second in range(10) for user in _slice(users, second)[0].to_pylist()]
    assert sorted(written) == sorted(users.to_pylist() * 2)


@pytest.mark.parametrize(("sizes", "spread"), [([100, 104, 98], 6.1), ([5, 5], 0.0)])
def test_spread_is_of_the_most_over_the_least(sizes, spread):
    assert spread_percent(sizes) == spread
