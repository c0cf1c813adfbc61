"""Text of others in a line of the log."""

import unicodedata

import pyarrow as pa
import pytest

from sparkrelay.errors import SerializationException
from sparkrelay.printable import printable, printable_lines
from sparkrelay.records.formats import String
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.plain import plain_to_column
from sparkrelay.runtime.contract.failure_marks import WorkerFailure, find_failure, new_key
from sparkrelay.runtime.spark.job_errors import _of_python, _one_line

FORGED = '{"n":1}\n16:00:00 delays: FORGED LINE \x1b[31mred\x9b2J \x7f\u2028\u202eabc\u2066\x85\r\x00'


def is_clean(text):
    return not any(unicodedata.category(c) in {"Cc", "Zl", "Zp", "Cs"} or unicodedata.bidirectional(c) in {
        "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
    } for c in text)  # fmt: skip


def test_controls_are_written_as_escapes():
    assert printable("a\nb\x1b[0m\x9b\u2028\u202e\ud800\t") == r"a\nb\x1b[0m\x9b\u2028\u202e\ud800\t"
    assert is_clean(printable("".join(map(chr, range(0x11000)))))


def test_all_else_stays_as_it_is():
    text = r"Zoë 東京 «a» 👩‍🚀 C:\new"
    assert printable(text) == text
    assert printable(printable(FORGED)) == printable(FORGED)


def test_lines_of_another_text_do_not_look_like_the_logs_own():
    assert (
        printable_lines("Traceback:\n\tat x\n16:00 app: forged\x1b")
        == "Traceback:\n        at x\n    16:00 app: forged\\x1b"
    )


@pytest.mark.parametrize(
    "record",
    [FORGED, f"[{FORGED}", '{"n": "%s"}' % FORGED, '{"n":1}\n16:00:00 delays: FORGED \x1b[31mred',  # noqa: UP031
     '{"n": "\\u001b[31m\\n16:00 forged\\u202e"}', '{"m": {"\\u001b\\n": "x"}, "n": 1}'],
)  # fmt: skip
def test_a_bad_record_says_why_on_one_clean_line(record):
    schema = pa.schema({"n": pa.int64(), "m": pa.map_(pa.string(), pa.int64())})
    _, bad = json_to_columns(pa.array([record.encode()]), schema)
    assert len(bad) == 1
    assert is_clean(bad[0].reason), bad[0].reason


def test_a_bad_key_says_why_on_one_clean_line():
    _, (bad,) = plain_to_column(pa.array([FORGED.encode() + b"\xff"]), String)
    assert is_clean(bad.reason)


def test_a_failed_job_is_said_on_one_clean_line():
    error = f'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: {FORGED}\n'
    assert is_clean(_of_python(error).cause)
    assert is_clean(_one_line(f"[CAST_INVALID_INPUT] {FORGED}"))


def test_a_workers_own_error_is_clean():
    key = new_key()
    error, _ = find_failure(str(WorkerFailure(SerializationException(f"cannot write {FORGED}"), key)), key)
    assert is_clean(str(error))
