"""`sparkrelay plan` on a file: what it prints, and what it refuses."""

import json
import socket

import pytest

from sparkrelay.cli import app as command_line

A, B = "5f2c1d90-0000-4000-8000-000000000001", "6a000000-0000-4000-8000-000000000002"


@pytest.fixture
def group():
    ends = {"0_0": 120_000, "0_1": 100_000}
    return {
        "configs": {},
        "tasks": [{"id": task, "stateful": True, "end_offset_sum": end} for task, end in ends.items()],
        "clients": [{"process_id": A, "prev_active": ["0_0", "0_1"], "lags": dict.fromkeys(ends, -2)}],
    }


@pytest.fixture
def ask(group, tmp_path, capsys):
    """`ask(*options, given=group)` returns exit code, standard output and standard error."""

    def run(*options, given=group):
        file = tmp_path / "group.json"
        file.write_text(given if isinstance(given, str) else json.dumps(given))
        code = command_line.run(["plan", "--state", str(file), *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_one_more_instance_in_words(ask, tmp_path):
    code, out, err = ask("--add", "1", "--restore-rate", "1000")
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in out.splitlines()] == [
        f"the group in {tmp_path / 'group.json'}, instances: 1 joining",
        "",
        "process   threads  active before  after  standby before  after   records to restore",
        "5f2c1d90        1  0_0 0_1        0_0    -               -                        -",
        "new-1           1  -              0_1    -               -      100,000 (copies: 1)",
        "",
        "Rebalance 1",
        "  task 0_1 warms up on new-1; 5f2c1d90 runs it meanwhile: its copy is not caught up (100,000 offsets behind)",
        "  new-1 restores records: 100,000 (copies: 1), 1.7 min",
        "Rebalance 2, and one more to hand tasks over",
        "  task 0_1 moves from 5f2c1d90 to new-1: its copy is caught up",
        "",
        "moves               1 of 2 tasks: 0_1",
        "rebalances          3",
        "records to restore  100,000 (copies: 1)",
        "all warm after      1.7 min at 1,000 records/s in each instance",
        "without service     no task: each is run by a complete copy from the rebalance on",
    ]


def test_the_same_for_programs(ask):
    code, out, _ = ask("--add", "1", "--restore-rate", "1000", "--json")
    planned = json.loads(out)
    assert code == 0
    assert planned["moved_tasks"] == ["0_1"]
    assert planned["rebalances"] == 3
    assert planned["seconds_until_warm"] == 100.0
    assert planned["processes"][0]["before"] == {"active": ["0_0", "0_1"], "standby": []}
    (warm_up,) = planned["rounds"][0]["decisions"]
    assert (warm_up["kind"], warm_up["reason"], warm_up["previous"]) == ("WARM_UP", "NOT_CAUGHT_UP", A)


def test_one_less_without_standbys_pauses_its_tasks(ask, group):
    group["clients"].append({"process_id": B, "prev_active": ["0_1"], "lags": {"0_0": 120_000, "0_1": -2}})
    group["clients"][0] |= {"prev_active": ["0_0"], "lags": {"0_0": -2, "0_1": 100_000}}
    code, out, _ = ask("--remove", "6a00")
    assert code == 0
    assert "1 task while it is restored: 0_1 for 1.1 s on 5f2c1d90" in out
    assert "6a000000 (leaves)" in out
    assert "measured once on 2 cores: give your own by --restore-rate" in out
    assert "session.timeout.ms" in out


def test_options_stand_for_the_groups_settings(ask):
    _, out, _ = ask("--standbys", "1")
    assert "fewer standbys than asked for: there are too few processes (0_0 0_1)" in out
    _, out, _ = ask("--add", "1", "--acceptable-lag", "1000000")
    assert "there is little or nothing to restore" in out


def test_a_whole_assignment_case_will_do(ask, group):
    code, out, _ = ask(given={"name": "case", "op": "ha", "input": group})
    assert code == 0
    assert "none needed" in out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--add", "-1"], "--add -1: give how many instances join"),
        (["--threads", "0"], "--threads 0: "),
        (["--standbys", "-1"], "--standbys -1: "),
        (["--warm-ups", "0"], "max.warmup.replicas"),
        (["--acceptable-lag", "-5"], "acceptable.recovery.lag"),
        (["--restore-rate", "0"], "--restore-rate 0: "),
        (["--restore-rate", "nan"], "--restore-rate nan: "),
        (["--remove", "zzz"], f"no process matches 'zzz'; the group has {A}"),
        (["--remove", A], "no process would be left"),
        (["--assignor", "no.such:Thing"], "'no.such:Thing' cannot be imported"),
        (["--assignor-setting", "mine=1"], "--assignor-setting mine=1: give KEY=VALUE with a KEY that begins with"),
        (
            ["--assignor-setting", "task.assignor.mine=1"],
            "TaskAssignor has no setting task.assignor.mine='1'",
        ),
        (["--application-id", "x"], "--state FILE describes a group of its own"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence_and_exit_2(ask, options, complaint):
    code, out, err = ask(*options)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.startswith("sparkrelay: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "does not describe a group"),
        ({"tasks": []}, "lacks 'clients'"),
        ({"tasks": [], "clients": []}, "without instances"),
        ({"tasks": [{"id": "x"}], "clients": []}, "not a task id"),
        ({"tasks": [], "clients": [], "configs": {"colour": 1}}, "colour"),
        ({"tasks": [{"id": "0_0", "stateful": True}], "clients": [{"process_id": A}]}, "unknown task 0_0"),
    ],
)
def test_files_that_describe_no_group(ask, given, complaint):
    code, _, err = ask(given=given)
    assert code == 2
    assert complaint in err


def test_a_group_must_be_named(capsys):
    for arguments in ([], ["--bootstrap-servers", "localhost:1"], ["--state", "/no/such/file"]):
        assert command_line.run(["plan", *arguments]) == 2
    reported = capsys.readouterr().err.splitlines()
    assert reported[0] == reported[1]
    assert "--bootstrap-servers HOST:PORT --application-id NAME, or --state FILE" in reported[0]
    assert reported[2] == "sparkrelay: --state /no/such/file: No such file or directory. Name a file that can be read."


def test_nobody_at_the_address(capsys, monkeypatch):
    from sparkrelay.planning import live_group

    monkeypatch.setattr(live_group, "_TIMEOUT_S", 0.3)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        assert command_line.run(["plan", "--bootstrap-servers", address, "--application-id", "x"]) == 2
    assert address in capsys.readouterr().err
