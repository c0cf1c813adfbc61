"""Files in which rows wait for foreachBatch."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commands import KeptRows
from sparkrelay.runtime.worker.rows_file import RowsFile, read_kept_rows, remove_kept_rows
from sparkrelay.types import TaskId

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TASK = SimpleNamespace(task=TaskId(0, 3))


def batch(*ids):
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "name": pa.array([f"n{i}" for i in ids])})


def keep_rows(directory, leg, task, batches, schema):
    """Return the file of those rows, or None."""
    with RowsFile(directory, leg, task, schema, f"the rows of task {task.task} for foreachBatch()") as file:
        for rows in batches:
            file.add(rows)
        return file.finish()


def ids_in(kept):
    return [id_ for rows in read_kept_rows(kept, SCHEMA, ()) for id_ in rows.column("id").to_pylist()]


def test_rows_are_read_as_often_as_wanted_in_their_order(tmp_path):
    kept = keep_rows(str(tmp_path / "home" / "1"), "sink:a#2/\u00e4", TASK, [batch(3, 1), batch(2)], SCHEMA)
    assert (kept.rows, ids_in(kept), ids_in(kept)) == (3, [3, 1, 2], [3, 1, 2])
    assert [path.name for path in Path(kept.path).parent.iterdir()] == [Path(kept.path).name]


def test_legs_whose_long_names_end_alike_have_files_of_their_own(tmp_path):
    legs = [f"store:{region}.prod.payments-platform.card-transactions.authorizations.v1" for region in ("eu", "us")]
    kept = [keep_rows(str(tmp_path / "1"), leg, TASK, [batch(n)], SCHEMA) for n, leg in enumerate(legs)]
    assert [ids_in(one) for one in kept] == [[0], [1]]
    assert all(len(Path(one.path).name) < 120 for one in kept)


def test_nothing_is_written_of_no_rows_and_older_batches_go(tmp_path):
    old = keep_rows(str(tmp_path / "1"), "a", TASK, [batch(1)], SCHEMA)
    assert keep_rows(str(tmp_path / "2"), "a", TASK, [batch()], SCHEMA) is None
    assert not Path(old.path).exists()
    remove_kept_rows(tmp_path)
    remove_kept_rows(tmp_path / "never there")
    assert list(tmp_path.iterdir()) == []


def test_a_worker_of_a_cancelled_batch_leaves_what_the_next_one_has(tmp_path):
    former = keep_rows(str(tmp_path / "0f-12"), "a", TASK, [batch(0)], SCHEMA)
    new = keep_rows(str(tmp_path / "1e-10"), "a", TASK, [batch(1)], SCHEMA)
    late = keep_rows(str(tmp_path / "1e-9"), "a", TASK, [batch(2)], SCHEMA)
    assert (Path(former.path).exists(), ids_in(new), ids_in(late)) == (False, [1], [2])


def test_a_second_try_replaces_the_first(tmp_path):
    keep_rows(str(tmp_path / "1"), "a", TASK, [batch(1)], SCHEMA)
    assert ids_in(keep_rows(str(tmp_path / "1"), "a", TASK, [batch(1, 2)], SCHEMA)) == [1, 2]


def test_a_file_that_is_not_finished_does_not_appear(tmp_path):
    with RowsFile(str(tmp_path / "1"), "a", TASK, SCHEMA, "the rows") as file:
        file.add(batch(1))
    assert [path.suffix for path in (tmp_path / "1").iterdir()] != [".arrow"]
    assert ids_in(keep_rows(str(tmp_path / "1"), "a", TASK, [batch(2)], SCHEMA)) == [2]


@pytest.mark.parametrize("length", [0, 100, -20])
def test_a_file_is_not_believed_to_be_whole(tmp_path, length):
    kept = keep_rows(str(tmp_path / "1"), "a", TASK, [batch(1), batch(2)], SCHEMA)
    path = Path(kept.path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StreamsException, match=r"cannot be read|has \d rows, not 2"):
        ids_in(kept)


def test_rows_that_are_missing_or_gone_are_refused(tmp_path):
    kept = keep_rows(str(tmp_path / "1"), "a", TASK, [batch(1)], SCHEMA)
    with pytest.raises(StreamsException, match="has 1 rows, not 2"):
        ids_in(KeptRows(kept.path, 2))
    remove_kept_rows(tmp_path)
    with pytest.raises(StreamsException, match="is for its function alone"):
        ids_in(kept)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "1").write_text("in the way")
    with pytest.raises(StreamsException, match="task 0_3 for foreachBatch.. cannot be written to .*/1/"):
        keep_rows(str(tmp_path / "1"), "a", TASK, [batch(1)], SCHEMA)
