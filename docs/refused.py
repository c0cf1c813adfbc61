"""Writes the page of what is refused from the texts of the errors.

python docs/refused.py > docs/reference/refused.md
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sparkrelay.topology.refusals import OF_KIND, OF_NODES, REMEDIES, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["page"]

_HEAD = """# What is refused, and what to write instead

A stream has no end, no order and no total, and a row of a table can change. So some steps of batch DataFrames have no
meaning here, or would give wrong answers. They are refused where they are written, with these texts after the file and
the line. Everything else that Spark's analyser accepts is run by Spark on the rows of a micro-batch.
[How it differs from plain PySpark](../how-to/pyspark.md) has what runs and gives other results.
"""
_SECTIONS = {
    "KStream": "Methods of streams",
    "KTable": "Methods of tables",
    "GroupedStream": "Methods of groupings",
    "StreamsBuilder": "Methods of the builder",
}
#: Nodes of Spark's plans -> how they are written.
_WRITTEN = {
    "Sort": "`orderBy`, `ORDER BY`",
    "GlobalLimit": "`limit`, `LIMIT`",
    "Offset": "`offset`, `OFFSET`",
    "Sample": "`sample`, `TABLESAMPLE`",
    "LocalRelation": "a query without a stream or a table, such as `SELECT 1`",
    "Intersect": "`INTERSECT`",
    "Except": "`subtract`, `EXCEPT`",
    "Repartition": "`REPARTITION` and `COALESCE` hints",
    "MapInArrow": "`mapInArrow`",
    "MapInPandas": "`mapInPandas`",
    "FlatMapGroupsInPandasWithState": "`applyInPandasWithState` before `builder.add`",
    "TransformWithStateInPySpark": "`transformWithState` before `builder.add`",
}


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_parts()])


def _parts() -> Iterator[str]:
    yield "## Steps and queries\n"
    yield from _table({**_of_nodes(), **STEPS})
    yield "\n## Methods of streams and tables\n"
    yield "Of DataFrames, of Kafka Streams and of other libraries:\n"
    yield from _table(_merged(REMEDIES))
    for kind, title in _SECTIONS.items():
        yield f"\n## {title}\n"
        yield from _table(_merged(OF_KIND[kind]))
    yield ""


def _of_nodes() -> dict[str, str]:
    """Return how nodes are written -> what to write instead; nodes that nobody writes are left out."""
    return _merged({_WRITTEN[node]: text for node, text in OF_NODES.items() if node in _WRITTEN}, mark="")


def _merged(texts: Mapping[str, str], *, mark: str = "`") -> dict[str, str]:
    """Return names with the same text as one row."""
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        names.setdefault(text, []).append(f"{mark}{name}{mark}")
    return {", ".join(some): text for text, some in names.items()}


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    yield "| Refused | Why, and what to write instead |"
    yield "| --- | --- |"
    for name, text in rows.items():
        yield f"| {name} | {text.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    sys.stdout.write(page())
