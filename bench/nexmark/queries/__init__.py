"""The 24 queries, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.nexmark.queries.groups import q15, q16, q17, q18, q19
from bench.nexmark.queries.joins import q3, q4, q6, q9, q20, q23
from bench.nexmark.queries.rows import q0, q1, q2, q10, q13, q14, q21, q22
from bench.nexmark.queries.windows import q5, q7, q8, q11, q12

if TYPE_CHECKING:
    from bench.nexmark.query import Query

__all__ = ["QUERIES"]

_EVERY: Final = (
    *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
    *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22, q23),
)
#: By their names.
QUERIES: Final[dict[str, Query]] = {query.name: query for query in _EVERY}
