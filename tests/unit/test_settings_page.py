"""docs/settings.md and the table of security in docs/how-to/connect.md list every setting as the code has it."""

import dataclasses
from pathlib import Path

import pytest

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.foreign_settings import FOREIGN as CLIENT_FOREIGN
from sparkrelay.config import FOREIGN as INSTANCE_FOREIGN, PREFIXES, SECURITY_PREFIXES, StreamsConfig
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.base.foreign_settings import FOREIGN as CONSUMER_FOREIGN
from sparkrelay.settings import INT32_MAX, INT64_MAX, settings_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "settings.md"
CONNECTING = DOCS / "how-to" / "connect.md"


def default(value):
    if value is dataclasses.MISSING:
        return "required"
    if value in {None, "", ()}:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def span(least, most):
    return f"{least} or more" if most in {INT32_MAX, INT64_MAX} else f"{least} to {most}"


def row(*cells):
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def table(rows, *heads):
    return "\n".join([row(*heads), row(*["---"] * len(heads)), *(row(*cells) for cells in rows)])


def settings_table(cls, *, security=None):
    rows = []
    for known in settings_of(cls).values():
        if security is not None and known.key.startswith(SECURITY_PREFIXES) != security:
            continue
        if known.choices:
            allowed = ", ".join(f"`{word}`" for word in known.choices if word)
        elif known.kind is bool:
            allowed = "true, false"
        else:
            allowed = span(known.least, known.most) if known.kind is int else ""
        other = ", ".join(f"`{alias}`" for alias in known.aliases)
        meaning = known.meaning + (f"; also {other}" if other else "")
        rows.append((f"`{known.key}`", default(known.default), allowed, meaning))
    return table(rows, "setting", "default", "range", "meaning")


def foreign_table(foreign):
    """Keys with the same answer share a row."""
    answers = {}
    for key, one in foreign.items():
        answers.setdefault((one.note, one.accepted), []).append(f"`{key}`")
    rows = []
    for (note, accepted), keys in answers.items():
        taken = "any" if accepted is None else ", ".join(f"`{word}`" for word in accepted if word.strip("[]"))
        rows.append((", ".join(keys), taken, note))
    return table(rows, "setting", "accepted, without effect", "otherwise refused, because")


TABLES = {
    "of an instance": (PAGE, lambda: settings_table(StreamsConfig)),
    "of the consumer": (PAGE, lambda: settings_table(ConsumerConfig)),
    "of connections": (PAGE, lambda: settings_table(ClientConfig, security=False)),
    "of security": (CONNECTING, lambda: settings_table(ClientConfig, security=True)),
    "of other instances": (PAGE, lambda: foreign_table(INSTANCE_FOREIGN)),
    "of other consumers": (PAGE, lambda: foreign_table(CONSUMER_FOREIGN)),
    "of other clients": (PAGE, lambda: foreign_table(CLIENT_FOREIGN)),
}


@pytest.mark.parametrize("what", TABLES)
def test_the_table_is_that_of_the_code(what):
    page, make = TABLES[what]
    assert make() in page.read_text(), f"replace the table {what} in {page.name} by\n\n{make()}"


def test_prefixes_are_named():
    page = PAGE.read_text()
    for word in {*PREFIXES, *SECURITY_PREFIXES}:
        assert f"`{word}" in page, word


def test_security_is_separated_from_the_rest_by_its_prefix():
    keys = {known.key for known in settings_of(ClientConfig).values() if known.key.startswith(SECURITY_PREFIXES)}
    ordinary = {"bootstrap.servers", "client.id", "request.timeout.ms"}
    assert len(keys) > 20
    assert not keys & ordinary
