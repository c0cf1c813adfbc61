"""Words that the code and its documentation do not use, because the field has others."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What is not said -> the field's word.
INSTEAD = {
    r"farewell": "leave, release",
    r"obituar": "closed_error",
    r"befall|befell": "happen",
    r"workshop": "RuntimeContext",
    r"\boutlet": "ConsumerHandle",
    r"whereabouts": "HostMetadata, client tags",
    r"topology.?card": "TopologyMetadata",
    r"rehears": "prewarm",
    r"tak(e|es|ing) stock|_take_stock": "inspect local state",
    r"patience": "deadline, timeout",
    r"\bwho slept": "zombie",
    r"so many-th": "attempt",
    r"raised_again|made_elsewhere": "error copies, forked",
    r'^ *"""See ``[\w.]+``\.?(""")?$': "what it does",
    r"(?-i:\bReplayer\b|\bOpenings\b)": "StateUpdater, TaskInitializer",
    r"(?-i:(Batch|Task|Replay|Clean|Claim|Release)Order\b)": "BatchCommand, RestoreCommand, ...",
    r"(?-i:\border: (Batch|Task|Restore|Clean|Claim|Release)Command\b)|sparkrelay\.order\b": "command",
    r"\b(jobs|target|spec|executor|command)\.slots\b|Spark partition \(.?slot": "spark_partitions",
    r"(?-i:\bPlace\.[a-z_])|\bplace of executor|\b(driver|executor)'s place\b": "ExecutorTarget",
    r"(?-i:\b_Replay\b)|\b(is|are) being replayed": "restore",
    r"replay thread|slices? of replaying|_replay_group|jobs\.replay\b|[a-z]-replay\b": "restore, state updater",
    r"\.settle\(|def _?settle\b|(?-i:\bSettled\b)": "resolve, flush, drop journals, wait for results, ...",
    r"\btasks? (is|are|was|were|must be) opened\b|\breopen_?task": "initialize",
    r"\bruns? (a|an|one|the) flow\b|\bflows under way|\bruns flows\b": "exchange",
    r"(?<![a-z])bells?(?![a-z])|(?<![a-z])rung(?![a-z])": "notify, register a waiter",
    # Two things are told apart, and a pure state machine is told the time; a file has ``tell()``.
    r"(?<![a-z])(tells?|told|telling)(?![a-z])(?!.*\bapart\b|_apart|\(\)| the time\b)": "report, log, notify, say",
    r"(?<![a-z])(un)?(hears?|heard|hearing)(?![a-z])": "take, note, get, be notified",
    r"(?-i:\bProcessPlan\b)": "ProcessChange",
}
LINES = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8").splitlines()
    for pattern in ("src/**/*.py", "tests/**/*.py", "tests/**/*.md", "bench/**/*.py", "docs/**/*.md", "*.md")
    for path in ROOT.glob(pattern)
    # The changelog names things as they were called.
    if path != Path(__file__) and path.name != "CHANGELOG.md"
}


@pytest.mark.parametrize(("word", "instead"), INSTEAD.items(), ids=list(INSTEAD.values()))
def test_the_fields_words_are_used(word, instead):
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, lines in LINES.items()
        for number, line in enumerate(lines, 1)
        if re.search(word, line, re.IGNORECASE)
    ]
    assert not found, f"write: {instead}"


def test_there_is_something_to_look_at():
    assert len(LINES) > 500
