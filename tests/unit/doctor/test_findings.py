"""How a report is shown."""

from sparkrelay.doctor.findings import as_json, as_lines, fail, ok, skip, warn

FOUND = [ok("a", "fine"), warn("b", "odd", "Look"), fail("c", "broken", "Mend it"), skip("d", "nobody says")]


def test_each_line_has_its_verdict_and_what_to_do():
    assert list(as_lines(FOUND)) == [
        "ok    a: fine",
        "warn  b: odd",
        "        -> Look",
        "fail  c: broken",
        "        -> Mend it",
        "skip  d: not checked: nobody says",
        "1 ok, 1 warn, 1 fail, 1 skip",
    ]


def test_json_says_whether_all_is_well():
    assert as_json(FOUND)["ok"] is False
    shown = as_json(FOUND[:2])
    assert shown["ok"] is True
    assert shown["findings"][1] == {"verdict": "warn", "check": "b", "found": "odd", "remedy": "Look"}
