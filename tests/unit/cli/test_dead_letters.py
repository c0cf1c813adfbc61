"""What the command line says of dead letters, whatever somebody has written into them."""

import pytest

from sparkrelay.cli import app as command_line
from sparkrelay.cli.dead_letters import _newest, _of_letters, described, replayed, summary
from sparkrelay.errors import ConfigException
from sparkrelay.runtime.instance.dead_letters import DeadLetter, Replay
from sparkrelay.types import TopicPartition

AT = TopicPartition("letters", 0)


def letter(**changed):
    fields = {
        "at": AT,
        "offset": 7,
        "timestamp": 1_700_000_000_000,
        "key": b"ada",
        "value": b"\xff\x00",
        "headers": (("id", b"1"), ("none", None)),
        "source": TopicPartition("orders", 3),
        "source_offset": 41,
        "exception": "ValueError",
        "message": "no",
        "trace": "",
    }
    return DeadLetter(**fields | changed)


def test_a_summary_has_a_line_for_each_topic_and_exception():
    newer = letter(timestamp=1_700_000_001_000, message="not\x1b[31m " + "x" * 200)
    lines = list(summary([letter(), newer, letter(source=None, exception="")]))
    assert lines[0].split()[:4] == ["2", "orders", "ValueError", "2023-11-14T22:13:21.000Z"]
    assert r"not\x1b[31m x" in lines[0]
    assert lines[0].endswith("...")
    assert lines[1].split()[:3] == ["1", "?", "?"]
    assert list(summary([])) == ["no letters"]


@pytest.mark.parametrize("read", [summary, lambda letters: _newest(letters, 10)])
def test_an_ordinary_topic_is_not_shown_as_dead_letters(read):
    ordinary = letter(source=None, source_offset=None, exception="", message="")
    with pytest.raises(ConfigException) as refused:
        list(read(_of_letters("orders", [ordinary] * 1200)))
    assert str(refused.value).startswith("topic 'orders' is not a dead letter topic: none of its 1,200 records has")
    assert "errors.dead.letter.queue.topic.name" in str(refused.value)
    assert list(read(_of_letters("letters", [])))[:1] in (["no letters"], [])
    assert list(read(_of_letters("letters", [ordinary, letter()])))


def test_a_letter_is_shown_as_text_where_it_is_some():
    assert list(described(letter())) == [
        "letters-0 at offset 7, from orders-3 at offset 41, 2023-11-14T22:13:20.000Z",
        "  ValueError: no",
        "  key      ada",
        "  value    0xff00",
        "  header   id = 1",
        "  header   none = null",
    ]
    shown = "\n".join(described(letter(value=b"a\n" * 2_000, source=None, timestamp=10**18)))
    assert "4,000 bytes" in shown
    assert r"a\na\n" in shown
    assert f"from ?, {10**18} ms" in shown


def test_a_replay_is_said_in_words():
    assert list(replayed(Replay({}, 0), execute=True)) == ["there is nothing that was not written back before"]
    assert list(replayed(Replay({"orders": 1200}, 0), execute=True)) == ["1,200 went back to orders"]
    wanted = list(replayed(Replay({"orders": 1}, 2), execute=False))
    assert wanted[0] == "1 would go back to orders"
    assert wanted[1].startswith("2 stay: ")
    assert wanted[2] == "nothing was changed; add --execute to do it"


def test_wrong_usage(capsys):
    at = ["--bootstrap-servers", "h:1"]
    for words in (["list"], ["show", "letters"], ["replay", "letters", *at, "--execute", "no"]):
        assert command_line.run(["dead-letters", *words]) == 2
        capsys.readouterr()
