"""The outcome of a check: a verdict, what was found, and a remedy."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INDENT = " " * 8


class Verdict(enum.StrEnum):
    """The outcome of a check; ``SKIP`` means that it was not possible."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report: what was checked (such as ``java`` or ``topic orders``), what was found, what to do."""

    verdict: Verdict
    check: str
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(Verdict.OK, check, found)


def warn(check: str, found: str, remedy: str) -> Finding:
    """Return a problem with which an instance runs, but badly or not for long."""
    return Finding(Verdict.WARN, check, found, remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    """Return a problem with which an instance does not run."""
    return Finding(Verdict.FAIL, check, found, remedy)


def skip(check: str, why: str, remedy: str = "") -> Finding:
    """Return a check that was not possible."""
    return Finding(Verdict.SKIP, check, f"not checked: {why}", remedy)


def as_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the report as text: a line for each finding, followed by its remedy."""
    count = dict.fromkeys(Verdict, 0)
    for finding in findings:
        count[finding.verdict] += 1
        yield f"{finding.verdict:<5} {finding.check}: {finding.found}"
        if finding.remedy:
            yield f"{_INDENT}-> {finding.remedy}"
    yield ", ".join(f"{number} {verdict}" for verdict, number in count.items() if number)


def as_json(findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the report as ``{"ok": bool, "findings": [...]}``; ok is false if a check has failed."""
    shown = [asdict(finding) for finding in findings]
    return {"ok": all(one["verdict"] != Verdict.FAIL for one in shown), "findings": shown}
