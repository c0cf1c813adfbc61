"""docs/settings.md lists every setting as `config.py` has it."""

from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic_core import PydanticUndefined

from sparkrelay.config import SECURITY_KEYS, StreamsConfig

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def default(field):
    if field.default is PydanticUndefined:
        return "required"
    if field.default in {None, "", ()}:
        return ""
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def limits(field):
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(field.annotation))
    if field.annotation is bool:
        return "true, false"
    least = next((rule.ge for rule in field.metadata if hasattr(rule, "ge")), None)
    most = next((rule.le for rule in field.metadata if hasattr(rule, "le")), None)
    if least is None:
        return ""
    return f"{least} or more" if most is None else f"{least} to {most}"


def table():
    lines = ["| setting | default | range | meaning |", "| --- | --- | --- | --- |"]
    for field in StreamsConfig.model_fields.values():
        if not field.alias.endswith("."):
            cells = (f"`{field.alias}`", default(field), limits(field), field.description)
            lines.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    return "\n".join(lines)


def test_the_table_is_that_of_the_code():
    assert table() in PAGE.read_text(), f"replace the table of {PAGE.name} by\n\n{table()}"


def test_prefixes_and_security_keys_are_named():
    page = PAGE.read_text()
    prefixes = [field.alias for field in StreamsConfig.model_fields.values() if field.alias.endswith(".")]
    for word in {*prefixes, *SECURITY_KEYS} - {"security."}:
        assert f"`{word}" in page, word
