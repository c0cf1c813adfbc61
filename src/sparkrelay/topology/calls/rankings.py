"""The best rows of each key: ``row_number()`` or ``rank()`` over a window, compared with a number, as in PySpark.

Of window functions these are there because little is kept for their answer: as many rows a key as are asked for, and
with ``rank()`` those that are equal to the last of them. The others look at every row there has been.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, TypeVar

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.calls.stateful_steps import Order
from sparkrelay.topology.columns import WindowColumns, argument_text, comparison, function_over_window
from sparkrelay.topology.public_calls import public_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.topology.call_site import CallSite

#: The KTable, which knows this file and is not known here.
TableT = TypeVar("TableT")
#: Rows of a key that may be kept: each of them is read and written when a better one comes.
_MOST: Final = 1_000
_COMPARED: Final = re.compile(r"\s*(`[^`]+`|\w+)\s*(<=|<|==?)\s*(\d+)\s*")
_RANK: Final = "rank"


@dataclass(frozen=True, slots=True)
class BestRows:
    """What is kept of each key.

    Attributes:
        partition: names of the columns that make the key.
        order: by what rows are better than others.
        number: the column that gets a row's place, from 1 on.
        count: how many rows of a key are kept; with ``ties``, up to which rank.
        ties: True for ``rank()``: rows that are equal in all of the order have the same one.
        text: the same as people read it.
    """

    partition: tuple[str, ...]
    order: tuple[Order, ...]
    number: str
    count: int
    ties: bool
    text: str


@public_calls
class RankedStream(Generic[TableT]):
    """Rows with their place among those of their key, waiting for ``where`` to say how many are wanted.

    Made by ``KStream.withColumn("n", F.row_number().over(...))``.
    """

    # What users see of it: it is made by withColumn(), and has where() alone.
    _kind: ClassVar = "withColumn(...)"

    __slots__ = ("_call_site", "_keep", "_number", "_window")

    def __init__(
        self, number: str, column: Any, keep: Callable[[BestRows, CallSite], TableT], call_site: CallSite
    ) -> None:
        """Take the place's column, how it is computed, and what makes a table of the rows that are kept.

        Raises:
            TopologyException: it is computed in another way than can be kept.
        """
        self._number = number
        window = function_over_window(column)
        assert window is not None, "the column is a function over a window"
        self._window = _checked(window, argument_text(column), call_site)
        self._keep = keep
        self._call_site = call_site

    def where(self, condition: Any) -> TableT:
        """Keep the first rows of each key: ``"n <= 10"`` or ``F.col("n") <= 10``.

        Raises:
            TopologyException: it says something else.
        """
        return self._where("where", condition)

    def filter(self, condition: Any) -> TableT:
        """Keep the first rows of each key; the same as :meth:`where`."""
        return self._where("filter", condition)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TopologyException(
            f"{find_call_site()}: behind {self._number!r} of {self._call_site}, a row's place among those of its key, "
            f'stands where("{self._number} <= 10"), which says how many are kept; {name}() may follow that'
        )

    def __repr__(self) -> str:
        return f"<RankedStream written at {self._call_site}>"

    def _where(self, method: str, condition: Any) -> TableT:
        call_site = find_call_site()
        compared = _compared(condition)
        if compared is None or compared[0] != self._number:
            raise TopologyException(
                f'{call_site}: {method}() behind {self._number!r} takes where("{self._number} <= 10"), how many rows '
                f"of each key are kept, not {argument_text(condition)}; further conditions stand in a where() of their "
                "own, on the rows before or on the table behind"
            )
        return self._keep(_best(self._window, self._number, *compared[1:], call_site), call_site)


def is_ranking(column: object) -> bool:
    """Return whether a column is a function over a window, of which one can be kept."""
    return function_over_window(column) is not None


def best_rows(condition: Any, call_site: CallSite) -> BestRows | None:
    """Return what ``where(F.row_number().over(...) <= 10)``, or ``rank()``, keeps; None for another condition.

    Raises:
        TopologyException: it is of a window, and cannot be kept.
    """
    window, operator, limit = comparison(condition) or (None, "", 0)
    if not isinstance(window, WindowColumns):
        return None
    return _best(_checked(window, argument_text(condition), call_site), window.function, operator, limit, call_site)


def _checked(window: WindowColumns, text: str, call_site: CallSite) -> WindowColumns:
    """Return how a row's place is computed.

    Raises:
        TopologyException: it is another function of a window, or the window is of something else than plain columns.
    """
    if window.function not in {"row_number", _RANK} or window.framed:
        raise TopologyException(
            f"{call_site}: {text}: of window functions F.row_number() and F.rank() are there, and keep the first rows "
            'of each key: withColumn("n", F.row_number().over(Window.partitionBy("key").orderBy(F.desc("x"))))'
            '.where("n <= 10")'
        )
    if not window.partition or not window.order:
        raise TopologyException(
            f"{call_site}: {text}: the window needs partitionBy(...) for the key, and orderBy(...) for the order of "
            "its rows"
        )
    if None in window.partition or any(order is None for order in window.order):
        raise TopologyException(
            f"{call_site}: {text}: partitionBy() and orderBy() take names of columns here; put an expression into a "
            'column before, withColumn("name", ...)'
        )
    return window


def _best(window: WindowColumns, number: str, operator: str, limit: int, call_site: CallSite) -> BestRows:
    count = limit - 1 if operator == "<" else limit
    if (operator in {"=", "=="} and limit != 1) or not 1 <= count <= _MOST:
        raise TopologyException(
            f"{call_site}: {number} {operator} {limit}: the first rows of each key are kept, at least 1 and at most "
            f'{_MOST:,}: where("{number} <= 10"); one of them alone is chosen behind the table, where("{number} = 3")'
        )
    partition = tuple(name for name in window.partition if name is not None)
    order = tuple(Order(*one) for one in window.order if one is not None)
    for names in (partition, tuple(one.column for one in order)):
        if len({name.lower() for name in (*names, number)}) <= len(names):
            raise TopologyException(
                f"{call_site}: a window over {', '.join(map(repr, names))} names a column twice, or {number!r}, which "
                "is the row's place in it"
            )
    over = f"partition by {', '.join(partition)} order by {', '.join(map(str, order))}"
    text = f"{window.function}() over ({over}) <= {count}"
    return BestRows(partition, order, number, count, window.function == _RANK, text)


def _compared(condition: Any) -> tuple[str, str, int] | None:
    """Return the column, the operator and the number of a comparison such as ``n <= 10``; None for anything else."""
    if isinstance(condition, str):
        match = _COMPARED.fullmatch(condition)
        return None if match is None else (match[1].strip("`"), match[2], int(match[3]))
    name, operator, limit = comparison(condition) or (None, "", 0)
    return (name, operator, limit) if isinstance(name, str) else None
