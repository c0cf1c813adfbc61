"""The group as one instance sees it: whoever does not answer is shown as such, and nobody waits for it."""

import json
import threading

import pytest
from tests.speaker import speaker
from tests.waiting import LONG

from sparkrelay.observe import peer
from sparkrelay.observe.details import InstanceDetails
from sparkrelay.observe.endpoint import serve
from sparkrelay.observe.group import GroupWatch
from sparkrelay.observe.instance_view import instance_view, read_view
from sparkrelay.observe.peer import ask_instance


@pytest.fixture
def view(busy):
    def make(process="aaaaaaaa", *, tasks=("0_0",), **details):
        made = instance_view(busy, InstanceDetails(**details))
        made["processes"] = [{"id": f"{process}-more", "executor": None}]
        made["tasks"] = [{**made["tasks"][0], "task": name, "process": process} for name in tasks]
        return made

    return make


def by_process(group):
    return {one["processes"][0]: one for one in group["instances"]}


@pytest.fixture
def watch(view):
    """`watch(answers, **members)`: the group of instance aaaaaaaa, where others answer by address."""

    def make(answers, plan=("0_0", "0_1"), **members):
        def ask(address, timeout):
            answer = answers[address]()
            if isinstance(answer, Exception):
                raise answer
            return answer

        own = view(plan=plan, members={"aaaaaaaa": "here:1", **members})
        return GroupWatch(lambda: own, ask)

    return make


def test_others_are_asked_where_the_group_says(watch, view):
    group = watch({"there:1": lambda: view("bbbbbbbb", tasks=["0_1"])}, bbbbbbbb="there:1").view()
    assert [(one["processes"], one["own"], one["problem"]) for one in group["instances"]] == [
        (["aaaaaaaa"], True, None),
        (["bbbbbbbb"], False, None),
    ]
    assert group["missing"] == []


def test_who_has_no_page_is_shown_as_such(watch):
    one = by_process(watch({}, bbbbbbbb="").view())["bbbbbbbb"]
    assert (one["view"], one["age"]) == (None, None)
    assert "set its metrics.port" in one["problem"]


def test_a_task_may_run_on_an_instance_without_a_page(watch):
    group = watch({}, bbbbbbbb="").view()
    assert (group["missing"], group["unknown"]) == ([], ["0_1"])
    group = watch({"there:1": lambda: ConnectionRefusedError(111, "no")}, bbbbbbbb="there:1", cccccccc="").view()
    assert (group["missing"], group["unknown"]) == ([], ["0_1"])


def test_what_an_instance_said_last_is_shown_with_its_age(watch, view, wait_until):
    answers = [view("bbbbbbbb", tasks=["0_1"])]
    group = watch({"there:1": lambda: answers[0]}, bbbbbbbb="there:1")
    assert group.view()["missing"] == []
    answers[0] = ConnectionRefusedError(111, "Connection refused")
    wait_until(lambda: group.view()["missing"] == ["0_1"], "its tasks count as run")
    one = by_process(group.view())["bbbbbbbb"]
    assert one["view"]["tasks"][0]["task"] == "0_1"
    assert one["age"] >= 0
    assert "does not answer" in one["problem"]
    assert "refused" in one["problem"]


def test_tasks_of_an_instance_that_has_failed_run_nowhere(watch, view):
    failed = view("bbbbbbbb", tasks=["0_1"]) | {"state": "ERROR"}
    assert watch({"there:1": lambda: failed}, bbbbbbbb="there:1").view()["missing"] == ["0_1"]


def test_nobody_waits_for_one_that_hangs_and_it_is_asked_once_at_a_time(watch, wait_until, view):
    asked, go_on = [], threading.Event()

    def hang():
        asked.append(1)
        go_on.wait(LONG)
        return view("bbbbbbbb")

    group = watch({"there:1": hang}, bbbbbbbb="there:1")
    for _ in range(3):
        assert by_process(group.view())["bbbbbbbb"]["problem"] == "not asked yet"
    assert len(asked) == 1
    go_on.set()
    wait_until(lambda: by_process(group.view())["bbbbbbbb"]["problem"] is None, "it did not answer")


def test_another_instance_at_the_address_is_not_taken_for_it(watch, view):
    one = by_process(watch({"127.0.0.1:1": lambda: view("cccccccc")}, bbbbbbbb="127.0.0.1:1").view())["bbbbbbbb"]
    assert one["view"] is None
    assert "another instance" in one["problem"]
    assert "metrics.server" in one["problem"]


def test_an_instance_of_several_processes_is_asked_once(watch, view):
    group = watch({"there:1": lambda: view("cccccccc")}, bbbbbbbb="there:1", cccccccc="there:1").view()
    assert [one["processes"] for one in group["instances"]] == [["aaaaaaaa"], ["bbbbbbbb", "cccccccc"]]


def test_whoever_left_the_group_is_forgotten(view):
    members = {"aaaaaaaa": "", "bbbbbbbb": "there:1"}
    group = GroupWatch(lambda: view(members=members), lambda *_: view("bbbbbbbb"))
    assert len(group.view()["instances"]) == 2
    members = {"aaaaaaaa": ""}
    assert len(group.view()["instances"]) == 1


def test_many_ask_and_the_group_is_looked_at_once(view):
    looked = []
    group = GroupWatch(lambda: looked.append(1) or view())
    texts = {group.text() for _ in range(20)}
    assert len(looked) == len(texts) == 1


# -- what a peer may do to us ----------------------------------------------------------------------------------------


OK = b"HTTP/1.0 200 OK\r\n"


@pytest.mark.parametrize(
    "says",
    [
        {"parts": [OK], "again": (b"X: y\r\n", 0.01)},
        {"parts": [OK + b"Content-Length: 9999\r\n\r\n"], "again": (b" ", 0.01)},
        {"parts": [], "again": (b"", 0.05)},
        {"parts": [OK + b"\r\n"], "again": (b" ", 0.01)},
    ],
)
def test_one_that_hangs_or_drips_is_given_up_in_time(says):
    with speaker(*says["parts"], again=says["again"]) as address, pytest.raises((TimeoutError, ValueError)):
        ask_instance(address, 0.5)


def test_one_that_never_stops_is_cut_off(monkeypatch):
    monkeypatch.setattr(peer, "_LONGEST_ANSWER", 1 << 16)
    with speaker(OK + b"\r\n", again=(b"[" * 65_536, 0)) as address, pytest.raises(ValueError, match="more than"):
        ask_instance(address, 30)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"not JSON", "Expecting"),
        (b"\xff\xfe", "Expecting"),
        (b"[]", "the answer is a list"),
        (b"{}", "has no"),
        (b"[" * 100_000, "nested"),
        (b'{"now": NaN}', "not a JSON number"),
    ],
)
def test_garbage_is_refused(body, why):
    with speaker(OK + b"\r\n" + body) as address, pytest.raises(ValueError, match=why):
        ask_instance(address, 30)


@pytest.mark.parametrize("answer", [b"\x16\x03\x01", b"SSH-2.0\r\n", b"HTTP/1.0 404 Not Found\r\n\r\n", b""])
def test_what_speaks_something_else_is_no_instance(answer):
    with speaker(answer) as address, pytest.raises((ValueError, OSError)):
        ask_instance(address, 30)


def test_an_instance_reads_what_another_one_serves(busy):
    with serve(lambda: busy, port=0) as endpoint:
        assert ask_instance(f"127.0.0.1:{endpoint.port}", 30)["application"] == "app"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state", 7),
        ("ready", "yes"),
        ("now", float("inf")),
        ("now", True),
        ("tasks", {}),
        ("tasks", [7]),
        ("plan", ["0_0"] * 5_001),
        ("trouble", "x" * 4_001),
        ("config", {"a": ["b"]}),
        ("history", [["a"]]),
    ],
)
def test_other_types_and_lengths_are_refused(view, key, value):
    with pytest.raises(ValueError, match=r"."):
        read_view({**view(), key: value})


def test_what_is_not_known_is_left_out(view):
    said = {**view(), "constructor": "x", "__proto__": {"polluted": 1}}
    assert read_view(json.loads(json.dumps(said))) == read_view(view() | {"now": said["now"]})
