"""Random statements over the views of :mod:`~tests.oracle.statements.rows`."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.oracle.statements.rows import STILL, STREAMS, TIMED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Generator", "Statement"]

#: What only streams read, and what only the batch does.
_EITHER: Final = re.compile("⟦([^¦⟧]*)¦([^⟧]*)⟧")
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double")
_PLAIN: Final = (
    *_NUMBERS,
    "string",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(12,3)",
    "decimal(38,10)",
)
#: Columns whose numbers are small: sums and averages of them are exact in any order.
_SMALL: Final = frozenset({"n", "v", "x", "y", "weight", "m"})
#: Aggregates that a row can be taken out of; and those of sessions, which can be merged.
_TAKEN_BACK: Final = re.compile(r"(count|count_if|sum|try_sum|avg|stddev|median|percentile|mode|size)\(")
_MERGED: Final = re.compile(
    r"(?!.*DISTINCT)(count|count_if|sum|try_sum|avg|stddev|min|max|max_by|min_by|any|approx_\w+)\("
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement.

    Attributes:
        stream: its text as a stream reads it.
        batch: as batch reads it.
        nodes: what it is made of, for the counts.
        final: True if windows are written once, when they are over.
        until: columns of times, of which the first that is not null says whether a row is of the rows themselves, not
            of later ones; none: all rows are.
        inexact: columns of doubles that may differ by a billionth.
        method: a method of DataFrames behind the text, and its arguments for the stream.
    """

    stream: str
    batch: str
    nodes: tuple[str, ...] = ()
    final: bool = False
    until: tuple[str, ...] = ()
    inexact: frozenset[str] = frozenset()
    method: tuple[str, tuple[Any, ...]] | None = None

    def __str__(self) -> str:
        more = "" if self.method is None else f" .{self.method[0]}{self.method[1]}"
        return f"{self.stream}{more}{' .outputMode(append)' if self.final else ''}"


@dataclass(slots=True)
class _Rel:
    """What may stand in FROM.

    Attributes:
        text: a name, or a subquery in parentheses.
        columns: with their types.
        table: True if rows change.
        key: columns that hold the message key, or a table's.
        time: the column of the watermark.
        unique: columns that no two rows have alike; empty if it is not known.
        inexact: columns of doubles that depend on an order.
        located: whether the message key of a stream is still known.
        versions: what stands for a table's rows with all their versions, in the batch's text.
    """

    text: str
    columns: dict[str, str]
    table: bool
    key: tuple[str, ...] = ()
    time: str | None = None
    unique: tuple[str, ...] = ()
    inexact: frozenset[str] = frozenset()
    located: bool = True
    versions: str | None = None


@dataclass(slots=True)
class _Made:
    """What is known of the statement in the making."""

    nodes: list[str] = field(default_factory=list)
    final: bool = False
    until: tuple[str, ...] = ()
    ctes: list[str] = field(default_factory=list)
    method: tuple[str, tuple[Any, ...]] | None = None


class Generator:
    """Makes one statement of a seed.

    Args:
        seed: what stands for it.
        columns: of the views.
    """

    def __init__(self, seed: int | str, columns: Mapping[str, dict[str, str]]) -> None:
        self._r = random.Random(f"statement {seed}")
        self._columns = columns
        self._count = 0
        self._made = _Made()

    def statement(self) -> Statement:
        """Return the statement."""
        ways: list[tuple[int, Callable[[], _Rel]]] = [
            (3, lambda: self._rows(self._any(2))),
            (5, self._updates),
            (4, self._windows),
            (3, self._best),
            (4, self._streams_joined),
            (4, self._lookup),
            (5, self._tables_joined),
            (2, self._fixed_joined),
            (2, self._distinct),
            (2, self._united),
            (2, self._read_twice),
            (6, self._composed),
            (2, self._joined_windows),
            (5, self._subquery),
            (3, self._sets),
            (6, self._running),
            (2, self._lateral),
            (1, self._sorted),
            (1, self._drawn),
            (2, self._grouped_ways),
            (2, self._method_behind),
        ]
        whole = self._weighted(ways)()
        if self._r.random() < 0.3 and not self._made.final and not self._made.until and self._made.method is None:
            whole = self._rows(whole)
        text = (
            whole.text[1:-1] if whole.text.startswith("(") else f"SELECT {', '.join(whole.columns)} FROM {whole.text}"
        )
        if self._made.ctes:
            text = f"WITH {', '.join(self._made.ctes)} {text}"
        made = self._made
        return Statement(
            _EITHER.sub(r"\1", text),
            _EITHER.sub(r"\2", text),
            tuple(dict.fromkeys(made.nodes)),
            made.final,
            made.until,
            whole.inexact & {*whole.columns},
            made.method,
        )

    # -- helpers --------------------------------------------------------------------------------------------------

    def _weighted(self, ways: list[tuple[int, Any]]) -> Any:
        return self._r.choices([way for _, way in ways], [weight for weight, _ in ways])[0]

    def _name(self, prefix: str = "q") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _note(self, node: str) -> None:
        self._made.nodes.append(node)

    def _some(self, names: list[str], least: int, most: int) -> list[str]:
        return self._r.sample(names, min(len(names), self._r.randint(least, most)))

    def _of(self, rel: _Rel, *kinds: str) -> list[str]:
        """Return the columns of a type; of doubles only those that are the same in any order."""
        return [name for name, kind in rel.columns.items() if kind in kinds and name not in rel.inexact]

    def _read(self, name: str) -> _Rel:
        """Return a view as it is."""
        columns = dict(self._columns[name])
        if name == "fixed":
            return _Rel("⟦{fixed}¦fixed⟧", columns, table=False)
        if name in STREAMS:
            return _Rel(name, columns, False, ("k",), "et" if name in TIMED else None, ("seq",))
        versions = f"⟦{name}¦{name}_versions⟧"
        return _Rel(name, columns, True, ("id",), None, ("id",), versions=versions)

    def _stream(self, depth: int = 1, *, timed: bool | None = None) -> _Rel:
        """Return a stream: a view, or rows of one."""
        if timed and self._r.random() < 0.15:
            self._note("WATERMARK")
            rel = self._read("logs")
            rel.text, rel.time = f"logs WATERMARK et DELAY OF INTERVAL {self._r.choice([10, 20])} SECONDS", "et"
        else:
            rel = self._read(self._r.choice(TIMED if timed else STREAMS))
        while depth and self._r.random() < 0.4:
            rel = self._rows(rel, keep=(*((rel.time,) if rel.time else ()), "seq", "k"))
            depth -= 1
        return rel

    def _table(self, depth: int = 1) -> _Rel:
        """Return a table: of a topic, of rows of one, or of an aggregation."""
        if depth > 1 and self._r.random() < 0.25:
            return self._aggregate(self._stream(), windows=False)
        rel = self._read(self._r.choice(["users", "items"]))
        if depth and self._r.random() < 0.4:
            rel = self._rows(rel, keep=("id",))
        return rel

    def _any(self, depth: int = 1) -> _Rel:
        return self._stream(depth) if self._r.random() < 0.5 else self._table(depth)

    # -- expressions ----------------------------------------------------------------------------------------------

    def _expression(self, rel: _Rel, kind: str | None = None) -> tuple[str, str]:
        """Return an expression over one row, and its type."""
        r = self._r
        ints = [name for name in self._of(rel, "int") if name in _SMALL]
        texts = self._of(rel, "string")
        doubles = [name for name in self._of(rel, "double") if name in _SMALL]
        plain = self._of(rel, *_PLAIN)
        ways: list[tuple[str, str]] = [("1", "int"), ("'one'", "string")]
        if ints:
            i = r.choice(ints)
            ways += [(f"{i} + 1", "int"), (f"abs({i})", "int"), (f"coalesce({i}, 0)", "int"), (f"pmod({i}, 3)", "int")]
            ways += [(f"{i} > 3", "boolean"), (f"cast({i} AS string)", "string"), (f"cast({i} AS double)", "double")]
            ways += [
                (f"CASE WHEN {i} < 2 THEN 'low' WHEN {i} < 9 THEN 'high' END", "string"),
                (f"if({i} > 2, {i}, NULL)", "int"),
            ]
            ways += [(f"greatest({i}, 4)", "int"), (f"{i} % 4 = 1", "boolean")]
        if texts:
            s = r.choice(texts)
            ways += [
                (f"upper({s})", "string"),
                (f"concat({s}, '-', {r.choice(texts)})", "string"),
                (f"length({s})", "int"),
            ]
            ways += [(f"coalesce({s}, 'none')", "string"), (f"nullif({s}, 'x')", "string"), (f"{s} = 'x'", "boolean")]
            ways += [(f"substring({s}, 1, 2)", "string"), (f"{s} IN ('x', 'y')", "boolean"), (f"md5({s})", "string")]
        if doubles:
            x = r.choice(doubles)
            ways += [
                (f"{x} * 2", "double"),
                (f"cast({x} AS int)", "int"),
                (f"round({x})", "double"),
                (f"{x} > 0", "boolean"),
            ]
        if plain:
            p = r.choice(plain)
            ways += [(f"{p} IS NULL", "boolean"), (f"coalesce({p}, {p})", rel.columns[p])]
            ways += [(f"hash({p})", "int")] if rel.columns[p] not in {"float", "double"} else []
        for name in self._of(rel, "array<string>"):
            ways += [(f"size({name})", "int"), (f"array_contains({name}, 'a')", "boolean")]
        for name in self._of(rel, "struct<c:string,n:int>"):
            ways += [(f"{name}.c", "string"), (f"{name}.n", "int")]
        for name in self._of(rel, "timestamp"):
            ways += [(f"date_trunc('minute', {name})", "timestamp"), (f"{name} + INTERVAL 5 SECONDS", "timestamp")]
            ways += [(f"hour({name})", "int"), (f"second({name})", "int")]
        found = [way for way in ways if kind is None or way[1] == kind]
        return r.choice(found or [("NULL", kind or "void")])

    def _condition(self, rel: _Rel, depth: int = 1) -> str:
        r = self._r
        if depth and r.random() < 0.3:
            one, other = self._condition(rel, depth - 1), self._condition(rel, depth - 1)
            return f"({one} {r.choice(['AND', 'OR'])} {other})"
        if r.random() < 0.15:
            return f"NOT ({self._condition(rel, 0)})"
        plain = self._of(rel, *_PLAIN)
        ways = [self._expression(rel, "boolean")[0]] * 2
        if plain:
            ways += [f"{r.choice(plain)} IS NOT NULL", f"{r.choice(plain)} IS NOT NULL"]
        if kept := [name for name in self._of(rel, "int") if name in _SMALL]:
            ways += [
                f"{r.choice(kept)} BETWEEN -2 AND 10",
                f"{r.choice(kept)} > {r.randrange(-3, 6)}",
                f"{r.choice(kept)} <=> NULL",
            ]
        if texts := self._of(rel, "string"):
            ways += [f"{r.choice(texts)} <> 'z'", f"{r.choice(texts)} LIKE '%a%'", f"{r.choice(texts)} < 'y'"]
        return r.choice([way for way in ways if way != "NULL"] or ["true"])

    # -- rows -----------------------------------------------------------------------------------------------------

    def _rows(self, rel: _Rel, keep: tuple[str, ...] = ()) -> _Rel:
        """Return rows of others: columns of them, expressions, perhaps a condition."""
        r = self._r
        self._note("rows")
        if r.random() < 0.15:
            return _replace(rel, text=f"(SELECT {', '.join(rel.columns)} FROM {rel.text} WHERE {self._condition(rel)})")
        shown = [name for name in rel.columns if name in keep or r.random() < 0.7] or list(rel.columns)[:1]
        items, columns = list(shown), {name: rel.columns[name] for name in shown}
        for _ in range(r.choice([0, 1, 1, 2])):
            text, kind = self._expression(rel)
            name = self._name("e")
            items.append(f"{text} AS {name}")
            columns[name] = kind
        where = f" WHERE {self._condition(rel)}" if r.random() < 0.5 else ""
        text = f"(SELECT {', '.join(items)} FROM {rel.text}{where})"
        if where and r.random() < 0.2:
            self._note("pipe syntax")
            text = f"(FROM {rel.text} |>{where} |> SELECT {', '.join(items)})"
        return _Rel(
            text,
            columns,
            rel.table,
            rel.key if {*rel.key} <= columns.keys() else (),
            rel.time if rel.time in columns else None,
            rel.unique if {*rel.unique} <= columns.keys() else (),
            rel.inexact,
            versions=rel.versions and text.replace(f"FROM {rel.text}", f"FROM {rel.versions}", 1),
        )

    # -- aggregates -----------------------------------------------------------------------------------------------

    def _call(self, rel: _Rel, *, sessions: bool = False) -> tuple[str, str, bool]:
        """Return an aggregate, its type, and whether it is exact; ``sessions`` for one of sessions."""
        r = self._r
        plain = self._of(rel, *_PLAIN)
        small = [name for name in rel.columns if name in _SMALL and name not in rel.inexact]
        ordered = [name for name in plain if rel.columns[name] not in {"float", "double"} or name in _SMALL]
        first = rel.unique[0] if rel.unique else None
        ways: list[tuple[str, str, bool]] = [("count(*)", "bigint", True)] * 3
        if plain:
            p = r.choice(plain)
            ways += [(f"count({p})", "bigint", True), (f"count(DISTINCT {p})", "bigint", True)] * 2
            ways += [(f"count_if({p} IS NULL)", "bigint", True), (f"any({p} IS NULL)", "boolean", True)]
        if small:
            m = r.choice(small)
            kind = "double" if m in {"x", "y"} else "bigint"
            ways += [(f"sum({m})", kind, True), (f"avg({m})", "double", True), (f"sum(DISTINCT {m})", kind, True)] * 2
            ways += [
                (f"stddev({m})", "double", False),
                (f"percentile({m}, 0.5)", "double", True),
                (f"median({m})", "double", True),
            ]
            ways += [
                (f"avg(DISTINCT {m})", "double", False),
                (f"sum({m}) + count(*)", kind, True),
                (f"try_sum({m})", kind, True),
            ]
        if ordered:
            o = r.choice(ordered)
            ways += [(f"min({o})", rel.columns[o], True), (f"max({o})", rel.columns[o], True)] * 2
            ways += [(f"size(collect_set({o}))", "int", True), (f"mode({o}, true)", rel.columns[o], True)]
            if rel.columns[o] in {"int", "string", "bigint"}:
                ways += [(f"array_sort(collect_list({o}))", f"array<{rel.columns[o]}>", True)]
            if first is not None:
                ways += [
                    (f"max_by({o}, {first})", rel.columns[o], True),
                    (f"min_by({o}, {first})", rel.columns[o], True),
                ]
        if texts := self._of(rel, "string"):
            s = r.choice(texts)
            ways += [(f"listagg({s}, ',') WITHIN GROUP (ORDER BY {s})", "string", True)]
        if (rel.table or sessions) and r.random() < 0.85:
            # The others are refused.
            pattern = _TAKEN_BACK if rel.table else _MERGED
            ways = [way for way in ways if pattern.match(way[0])]
        text, kind, exact = r.choice(ways)
        if r.random() < 0.25 and re.fullmatch(r"[a-z_]+\([^()]*\)", text):
            text += f" FILTER (WHERE {self._condition(rel, 0)})"
        return text, kind, exact

    def _aggregate(self, rel: _Rel, *, windows: bool = True, final: bool = False, alone: bool = False) -> _Rel:
        """Return a grouping, a table; ``alone`` by nothing but a window."""
        r = self._r
        self._note("aggregate of a table" if rel.table else "aggregate")
        groupable = [name for name in self._of(rel, *_PLAIN) if name not in {"seq", "ver", "et"} and name != rel.time]
        if final:
            groupable = [name for name in groupable if name in {"k", "g", "n", "fk", "s"}]
        by = [(name, name, rel.columns[name]) for name in self._some(groupable, 1, 2)]
        if r.random() < 0.2 and not final:
            text, kind = self._expression(rel)
            if text not in {"NULL", "1", "'one'"} and kind in _PLAIN:
                by = [*by[:1], (text, self._name("e"), kind)] if r.random() < 0.5 else [(text, self._name("e"), kind)]
        window: list[tuple[str, str, str]] = []
        until: tuple[str, ...] = ()
        if windows and rel.time is not None and not rel.table:
            t = rel.time
            sort = r.choice(["tumbling", "sliding", "session"])
            self._note(f"{sort} window")
            made = {
                "tumbling": f"window({t}, '{r.choice([5, 10, 60])} seconds')",
                "sliding": f"window({t}, '12 seconds', '{r.choice([4, 5])} seconds')",
                "session": f"session_window({t}, '{r.choice([2, 4])} seconds')",
            }[sort]
            word = made.partition("(")[0]
            by = by if r.random() < 0.7 and not alone else []
            window = [(made, word, "window")]
            until = (self._name("ends"),)
        nulls = self._left_out(rel, by, window=bool(window))
        items = [text if text == name else f"{text} AS {name}" for text, name, _ in by]
        columns = {name: kind for _, name, kind in by}
        for _, word, _ in window:
            items.append(f"{word}.end AS {until[0]}")
            columns[until[0]] = "timestamp"
        inexact: set[str] = set()
        for _ in range(r.choice([0, 1, 1, 1, 2, 3, 4, 4])):
            text, kind, exact = self._call(rel, sessions=any(word == "session_window" for _, word, _ in window))
            name = self._name("r")
            items.append(f"{text} AS {name}")
            columns[name] = kind
            if not exact:
                inexact.add(name)
        having = ""
        if r.random() < 0.25:
            self._note("HAVING")
            more = "max(seq) > 20" if "seq" in rel.columns else "count(*) > 2"
            having = f" HAVING {r.choice(['count(*) > 1', 'count(*) < 6', more])}"
        where = [f"⟦true¦{text} IS NOT NULL⟧" for text in nulls]
        if r.random() < 0.2:
            where.append(self._condition(rel))
        groups = [text for text, _, _ in (*by, *window)]
        if final:
            self._made.final, self._made.until = True, until
        text = (
            f"(SELECT {', '.join(items)} FROM {rel.text}{' WHERE ' if where else ''}{' AND '.join(where)} "
            f"GROUP BY {', '.join(groups)}{having})"
        )
        key = tuple(name for _, name, _ in by) + until
        return _Rel(text, columns, True, key, None, key, frozenset(inexact), located=False)

    def _left_out(self, rel: _Rel, by: list[tuple[str, str, str]], *, window: bool) -> list[str]:
        """Return what rows have no null in: as the only key of a group, or as the message key among the keys."""
        if not rel.table and rel.key and rel.located and {*rel.key} <= {text for text, _, _ in by}:
            return list(rel.key)
        plain = [text for text, name, _ in by if text == name]
        if plain:
            return plain if len(plain) == 1 else []
        return [by[0][0]] if len(by) == 1 else []

    def _updates(self) -> _Rel:
        rel = self._any(1)
        made = self._aggregate(rel, windows=self._r.random() < 0.4)
        if self._r.random() < 0.3:
            return self._aggregate(made, windows=False)
        return made

    def _composed(self) -> _Rel:
        """Return a grouping, best rows or rows of what another stage has made."""
        r = self._r
        below = r.choice(
            [self._lookup, self._distinct, self._united, self._fixed_joined, self._streams_joined, self._best]
        )
        rel = below()
        # The times of rows show which come late.
        if self._made.until:
            return rel
        if rel.table or r.random() < 0.6:
            return self._aggregate(rel, windows=False)
        return self._distinct(rel)

    def _joined_windows(self) -> _Rel:
        """Return final windows of two streams together: joined, with a watermark of their own, or united."""
        r = self._r
        if r.random() < 0.5:
            self._note("WATERMARK of a join")
            left, right = self._stream(0, timed=True), self._stream(0, timed=True)
            within = "r.et BETWEEN l.et - INTERVAL 5 SECONDS AND l.et + INTERVAL 10 SECONDS"
            sides = f"{left.text} AS l JOIN {right.text} AS r ON l.k = r.k AND {within}"
            text = f"(SELECT l.et AS et, l.n AS n, r.x AS x FROM {sides})"
            columns = {"et": "timestamp", "n": "int", "x": "double"}
            rel = _Rel(f"{text} WATERMARK et DELAY OF INTERVAL 60 SECONDS", columns, False, time="et", located=False)
            return self._aggregate(rel, final=True, alone=True)
        self._note("windows of a union")
        texts = [f"SELECT k, seq, g, n, x, et FROM {name} WHERE {self._condition(self._read(name))}" for name in TIMED]
        columns = {name: self._columns["clicks"][name] for name in ("k", "seq", "g", "n", "x", "et")}
        return self._aggregate(
            _Rel(f"({' UNION ALL '.join(texts)})", columns, False, time="et", located=False), final=True
        )

    def _windows(self) -> _Rel:
        """Return windows that are written when they are over, or as they grow."""
        return self._aggregate(self._stream(timed=True), final=self._r.random() < 0.7)

    def _grouped_ways(self) -> _Rel:
        r = self._r
        rel = self._any(1)
        names = self._some([name for name in self._of(rel, *_PLAIN) if name not in {"seq", "ver", "et"}], 2, 2)
        if r.random() < 0.3 or len(names) < 2:
            self._note("aggregate of all rows")
            text, kind, exact = self._call(rel)
            # Of a stream there is a total once a row has come.
            some = "" if rel.table else "⟦¦ HAVING count(*) > 0⟧"
            inexact = frozenset(() if exact else "r")
            return _Rel(f"(SELECT {text} AS r FROM {rel.text}{some})", {"r": kind}, True, inexact=inexact)
        way = r.choice(["ROLLUP", "CUBE", "GROUPING SETS"])
        self._note(way)
        groups = f"{way} ({', '.join(names)})"
        if way == "GROUPING SETS":
            groups = f"GROUPING SETS (({names[0]}), ({names[1]}))"
        call, kind, exact = self._call(rel)
        columns = {**{name: rel.columns[name] for name in names}, "r": kind, "w": "bigint"}
        text = f"(SELECT {', '.join(names)}, {call} AS r, grouping_id() AS w FROM {rel.text} GROUP BY {groups})"
        return _Rel(text, columns, True, inexact=frozenset(() if exact else "r"))

    # -- best rows ------------------------------------------------------------------------------------------------

    def _best(self) -> _Rel:
        r = self._r
        rel = self._any(1)
        if not rel.unique:
            rel = self._read(r.choice([*STREAMS, "users"]))
        function = r.choices(["row_number()", "rank()", "dense_rank()", "sum(n)"], [8, 2, 1, 1])[0]
        self._note(f"window function {function[:-1].partition('(')[0]}")
        candidates = [name for name in self._of(rel, *_PLAIN) if name not in {*rel.unique, "et"}]
        partition = self._some([name for name in candidates if rel.columns[name] != "float"], 1, 2) or list(rel.unique)
        order = self._some([name for name in candidates if name not in partition and name != "d"], 0, 2)
        if rel.time and r.random() < 0.3:
            order = [rel.time, *order]
        ways = [
            f"{name} {r.choice(['', 'ASC', 'DESC'])} {r.choice(['', 'NULLS LAST', 'NULLS FIRST'])}" for name in order
        ]
        ways += list(rel.unique)
        if function == "sum(n)":
            function = f"sum({'n' if 'n' in rel.columns else 'v' if 'v' in rel.columns else 1})"
        nulls = self._left_out(rel, [(name, name, "") for name in partition], window=False)
        where = f" WHERE {' AND '.join(f'⟦true¦{name} IS NOT NULL⟧' for name in nulls)}" if nulls else ""
        place = self._name("place")
        shown = [name for name in rel.columns if r.random() < 0.6 or name in partition]
        over = f"{function} OVER (PARTITION BY {', '.join(partition)} ORDER BY {', '.join(ways)})"
        inner = f"(SELECT {', '.join(rel.columns)}, {over} AS {place} FROM {rel.text}{where})"
        kept = r.choice([1, 2, 3])
        condition = r.choice([f"{place} <= {kept}", f"{place} < {kept + 1}", f"{kept} >= {place}", f"{place} = 1"])
        if r.random() < 0.4:
            condition += f" AND {self._condition(_replace(rel, columns={n: rel.columns[n] for n in shown}))}"
        columns = {name: rel.columns[name] for name in shown}
        if r.random() < 0.6:
            columns[place] = "bigint" if function.startswith("sum") else "int"
        text = f"(SELECT {', '.join(columns)} FROM {inner} WHERE {condition})"
        return _Rel(text, columns, True, inexact=rel.inexact, located=False)

    # -- running aggregates ---------------------------------------------------------------------------------------

    def _running(self) -> _Rel:
        """Return a stream with functions over frames, perhaps over what others have made."""
        r = self._r
        rel = self._stream(timed=True)
        # Frames of rows need an order without ties: of one key it is that of arrival.
        by = r.choice([["k"], ["k"], [name for name in ("k", "g") if name in rel.columns], ["g"], ["fk"]])
        by = by if {*by} <= rel.columns.keys() else ["k"]
        rel = self._framed(rel, by)
        if r.random() < 0.25:
            self._note("frames over frames")
            # Each row has two later ones that close it.
            rel = self._framed(rel, by, again="lead(" in rel.text or "FOLLOWING" in rel.text)
        self._made.until = (rel.time or "",)
        return rel

    def _framed(self, rel: _Rel, by: list[str], *, again: bool = False) -> _Rel:
        """Return rows with functions over frames; ``again`` for those of rows that have waited for others."""
        r = self._r
        time = rel.time or ""
        partition = f"PARTITION BY {', '.join(by)} ORDER BY {time}"
        frames = ["RANGE UNBOUNDED PRECEDING", "RANGE CURRENT ROW", ""]
        frames += [f"RANGE BETWEEN INTERVAL {n} SECONDS PRECEDING AND CURRENT ROW" for n in (1, 7, 30)]
        if "k" in by:
            places = [("UNBOUNDED PRECEDING", "CURRENT ROW")] * 3
            places += [(f"{n} PRECEDING", end) for n in (1, 4) for end in ("CURRENT ROW", "1 PRECEDING", "2 FOLLOWING")]
            places = [(start, end) for start, end in places if not (again and "FOLLOWING" in end)]
            frames = [*frames[:4], *(f"ROWS BETWEEN {start} AND {end}" for start, end in places)]
        items, columns, inexact = list(rel.columns), dict(rel.columns), {*rel.inexact}
        for _ in range(r.choice([1, 1, 2, 3])):
            text, kind, exact = self._function(rel, ordered="k" in by)
            if again and text.startswith("lead"):
                text = text.replace("lead", "lag")
            frame = r.choice(frames)
            if text.startswith(("lag", "lead", "row_number")):
                frame = "ROWS"
            self._note(f"frame of {'rows' if frame.startswith('ROWS') else 'times'}")
            over = f"{partition}⟦¦, seq⟧" if frame.startswith("ROWS") else partition
            name = self._name("w")
            items.append(f"{text} OVER ({over}{'' if frame == 'ROWS' else f' {frame}'}) AS {name}")
            columns[name] = kind
            if not exact:
                inexact.add(name)
        nulls = self._left_out(rel, [(name, name, "") for name in by], window=False)
        where = " AND ".join(f"⟦true¦{name} IS NOT NULL⟧" for name in (*nulls, time))
        text = f"(SELECT {', '.join(items)} FROM {rel.text} WHERE {where})"
        return _Rel(text, columns, False, rel.key, time, rel.unique, frozenset(inexact))

    def _function(self, rel: _Rel, *, ordered: bool) -> tuple[str, str, bool]:
        """Return a function over a window, its type, and whether it is exact; ``ordered`` if there are no ties."""
        r = self._r
        plain = self._of(rel, *_PLAIN)
        small = [name for name in rel.columns if name in _SMALL and name not in rel.inexact]
        ways: list[tuple[str, str, bool]] = [("count(*)", "bigint", True)]
        for name in self._some(small, 0, 2):
            kind = "double" if name in {"x", "y"} else "bigint"
            ways += [(f"sum({name})", kind, True), (f"avg({name})", "double", True)] * 2
            ways.append((f"stddev({name})", "double", False))
        for name in self._some([one for one in plain if rel.columns[one] not in {"float", "double"}], 0, 2):
            ways += [(f"{word}({name})", rel.columns[name], True) for word in ("min", "max")]
            ways += [(f"count({name})", "bigint", True), (f"max_by({name}, seq)", rel.columns[name], True)]
            if ordered:
                ways += [(f"{word}({name})", rel.columns[name], True) for word in ("lag", "lag", "lead")]
        if ordered:
            ways.append(("row_number()", "int", True))
        return r.choice(ways)

    # -- joins ----------------------------------------------------------------------------------------------------

    def _sides(self, left: _Rel, right: _Rel, most: int = 3) -> tuple[list[str], dict[str, str], frozenset[str]]:
        """Return columns of both sides with names of their own, their types, and which are inexact."""
        items, columns, inexact = [], {}, set()
        for alias, rel in (("l", left), ("r", right)):
            for name in self._some(list(rel.columns), 1, most):
                made = f"{alias}_{name}"
                items.append(f"{alias}.{name} AS {made}")
                columns[made] = rel.columns[name]
                if name in rel.inexact:
                    inexact.add(made)
        return items, columns, frozenset(inexact)

    def _streams_joined(self) -> _Rel:
        r = self._r
        how = r.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        self._note(f"streams: {how}")
        left, right = self._stream(timed=True), self._stream(timed=True)
        on = [r.choice(["l.k = r.k", "l.k = r.k", "l.fk = r.k", "l.g = r.g", "l.k = r.k AND l.g = r.g"])]
        if "fk" in on[0] and "fk" not in left.columns:
            on = ["l.k = r.k"]
        if "g" in on[0] and not ("g" in left.columns and "g" in right.columns):
            on = ["l.k = r.k"]
        before, after = r.choice([0, 3, 10]), r.choice([0, 5, 10])
        a, b = f"l.{left.time}", f"r.{right.time}"
        ranges = [
            f"{b} BETWEEN {a} - INTERVAL {before} SECONDS AND {a} + INTERVAL {after} SECONDS",
            f"{b} >= {a} - INTERVAL {before} SECONDS AND {b} <= {a} + INTERVAL {after} SECONDS",
            f"{a} <= {b} + INTERVAL {before} SECONDS AND {b} < {a} + INTERVAL {after + 1} SECONDS",
        ]
        on.append(r.choice(ranges))
        if r.random() < 0.25 and "n" in left.columns and "n" in right.columns:
            on.append("l.n < r.n")
        items, columns, inexact = self._sides(left, right)
        if "SEMI" in how or "ANTI" in how:
            items = [item for item in items if item.startswith("l.")]
            columns = {name: kind for name, kind in columns.items() if name.startswith("l_")}
        if how != "JOIN":
            times = {"l_end": a} if "SEMI" in how or "ANTI" in how else {"l_end": a, "r_end": b}
            items += [f"{time} AS {name}" for name, time in times.items()]
            columns |= dict.fromkeys(times, "timestamp")
            self._made.until = tuple(times)
        text = f"(SELECT {', '.join(items)} FROM {left.text} AS l {how} {right.text} AS r ON {' AND '.join(on)})"
        return _Rel(text, columns, False, inexact=inexact, located=False)

    def _lookup(self) -> _Rel:
        r = self._r
        how = r.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        left = self._stream()
        by = r.choice(["k", "k", "fk"] if "fk" in left.columns else ["k"])
        # Behind a repartition topic, a row's place in time among the table's is not known before the run.
        name = r.choice(["users", "items", "users", "world"] if by == "k" else STILL)
        right = self._read(name)
        if r.random() < 0.3 and name != "world":
            right = self._rows(right, keep=("id",))
        self._note(f"lookup: {how}" if name != "world" else f"global lookup: {how}")
        on = [f"l.{by} = r.id"]
        if r.random() < 0.2 and "g" in left.columns and "g" in right.columns:
            on.append(r.choice(["l.g = r.g", "r.g <> 'x'", "l.g = 'y'"]))
        items, columns, inexact = self._sides(left, right)
        if "SEMI" in how or "ANTI" in how:
            items = [item for item in items if item.startswith("l.")]
            columns = {name: kind for name, kind in columns.items() if name.startswith("l_")}
        if name in STILL:
            table = right.text
        else:
            table = right.versions or right.text
            on.append("⟦true¦l.seq > r.from_ AND l.seq <= r.to_⟧")
            if right.text != name:
                # The versions' bounds go through the rows, too.
                table = table.replace("(SELECT ", "(SELECT ⟦¦from_, to_, ⟧").replace(
                    "|> SELECT ", "|> SELECT ⟦¦from_, to_, ⟧"
                )
        swapped = r.random() < 0.15 and how == "LEFT JOIN"
        tables = (f"{table} AS r RIGHT JOIN {left.text} AS l") if swapped else f"{left.text} AS l {how} {table} AS r"
        text = f"(SELECT {', '.join(items)} FROM {tables} ON {' AND '.join(on)})"
        key = ("l_k",) if by == "k" and "l_k" in columns else ()
        return _Rel(text, columns, False, key, inexact=inexact)

    def _tables_joined(self) -> _Rel:
        r = self._r
        how = r.choice(
            ["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
        )
        left, right = self._table(2), self._table(1)
        ways = []
        if "id" in left.columns and "id" in right.columns:
            ways += [("key", "l.id = r.id")] * 4
        if "fk" in left.columns and "id" in right.columns:
            ways += [("foreign key", "l.fk = r.id")] * 3
        if "g" in left.columns and "g" in right.columns:
            ways += [("other columns", "l.g = r.g")] * 2 + [("no equal columns", "l.g < r.g")]
        sort, on = r.choice(ways or [("no equal columns", "true")])
        if r.random() < 0.2 and "g" in left.columns and "g" in right.columns:
            on += " AND l.g = r.g"
        if r.random() < 0.06:
            how, sort = "CROSS JOIN", "cross"
        self._note(f"tables by {sort}: {how}")
        items, columns, inexact = self._sides(left, right)
        if "SEMI" in how or "ANTI" in how:
            items = [item for item in items if item.startswith("l.")]
            columns = {name: kind for name, kind in columns.items() if name.startswith("l_")}
        where = ""
        if how in {"JOIN", "LEFT JOIN"} and r.random() < 0.3:
            made = self._condition(left).split(" ")
            where = (
                f" WHERE {' '.join(made)}"
                if not {*left.columns} & {*right.columns}
                else " WHERE l.id IS NOT NULL"
                if "id" in left.columns
                else ""
            )
        text = (
            f"(SELECT {', '.join(items)} FROM {left.text} AS l {how} {right.text} AS r"
            f"{'' if how == 'CROSS JOIN' else f' ON {on}'}{where})"
        )
        made_rel = _Rel(text, columns, True, inexact=inexact, located=False)
        if r.random() < 0.25:
            return self._aggregate(made_rel, windows=False)
        return made_rel

    def _fixed_joined(self) -> _Rel:
        r = self._r
        left = self._any(1)
        right = self._read("fixed")
        how = r.choice(["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN"])
        self._note(f"DataFrame: {how}")
        by = r.choice([name for name in ("k", "id", "fk") if name in left.columns])
        on = r.choice([f"l.{by} = r.code"] * 3 + ["r.weight > 4"])
        items, columns, inexact = self._sides(left, right)
        if "SEMI" in how or "ANTI" in how:
            items = [item for item in items if item.startswith("l.")]
            columns = {name: kind for name, kind in columns.items() if name.startswith("l_")}
        condition = "" if "CROSS" in how else f" ON {on}"
        text = f"(SELECT {', '.join(items)} FROM {left.text} AS l {how} {right.text} AS r{condition})"
        key = ("l_k",) if "l_k" in columns else ()
        return _Rel(text, columns, left.table, key, inexact=inexact)

    # -- duplicates, sets ---------------------------------------------------------------------------------------

    def _distinct(self, rel: _Rel | None = None) -> _Rel:
        rel = rel or self._any(1)
        self._note("DISTINCT of a table" if rel.table else "DISTINCT")
        shown = self._some([name for name in self._of(rel, *_PLAIN) if name not in {"seq", "ver", "et"}], 1, 3)
        if not shown:
            return rel
        # Of a table, null is a value like others: it is grouped by true, too.
        nulls = [] if rel.table else self._left_out(rel, [(name, name, "") for name in shown], window=False)
        where = f" WHERE {' AND '.join(f'⟦true¦{name} IS NOT NULL⟧' for name in nulls)}" if nulls else ""
        text = f"(SELECT DISTINCT {', '.join(shown)} FROM {rel.text}{where})"
        return _Rel(text, {name: rel.columns[name] for name in shown}, rel.table, inexact=rel.inexact)

    def _alike(self, *, tables: bool | None = None) -> tuple[_Rel, list[_Rel]]:
        """Return two relations with the same columns."""
        r = self._r
        tables = r.random() < 0.4 if tables is None else tables
        names = ["id", "g", "v"] if tables else ["k", "seq", "g", "n"]
        shown = self._some(names, 2, len(names))
        views = r.sample(["users", "items"] if tables else list(STREAMS), 2)
        sides = []
        for view in views:
            rel = self._read(view)
            where = f" WHERE {self._condition(rel)}" if r.random() < 0.5 else ""
            sides.append(_replace(rel, text=f"SELECT {', '.join(shown)} FROM {rel.text}{where}"))
        columns = {name: self._columns[views[0]][name] for name in shown}
        return _Rel("", columns, tables, located=False), sides

    def _united(self) -> _Rel:
        r = self._r
        word = r.choice(["UNION ALL", "UNION ALL", "UNION"])
        made, sides = self._alike()
        self._note(f"{word} of {'tables' if made.table else 'streams'}")
        if word == "UNION":
            nulls = self._left_out(made, [(name, name, "") for name in made.columns], window=False)
            if nulls:
                word = "UNION ALL"
        made.text = f"({f' {word} '.join(side.text for side in sides)})"
        if r.random() < 0.4:
            return self._aggregate(made, windows=False)
        return made

    def _sets(self) -> _Rel:
        word = self._r.choice(["INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
        made, sides = self._alike()
        self._note(f"{word} of {'tables' if made.table else 'streams'}")
        made.text = f"({f' {word} '.join(side.text for side in sides)})"
        made.table = True
        return made

    def _read_twice(self) -> _Rel:
        r = self._r
        sort = r.choice(["rows", "aggregate", "table"])
        self._note(f"CTE read twice: {sort}")
        name = self._name("cte")
        if sort == "rows":
            rel = self._rows(self._read(r.choice(STREAMS)), keep=("k", "seq", "g", "n"))
            self._made.ctes.append(f"{name} AS {rel.text}")
            both = f"SELECT k, n FROM {name} UNION ALL SELECT k, n + 1 AS n FROM {name}"
            columns = {"k": rel.columns["k"], "n": "int"}
            return _Rel(f"({both})", columns, False, located=False)
        if sort == "table":
            rel = self._rows(self._read(r.choice(["users", "items"])), keep=("id", "g", "v", "fk"))
            on = r.choice(["l.id = r.id", "l.fk = r.id"])
        else:
            rel = self._aggregate(self._stream(), windows=False)
            on = " AND ".join(f"l.{one} = r.{one}" for one in rel.key)
        self._made.ctes.append(f"{name} AS {rel.text}")
        items, columns, inexact = self._sides(rel, rel)
        text = f"(SELECT {', '.join(items)} FROM {name} AS l JOIN {name} AS r ON {on})"
        return _Rel(text, columns, True, inexact=inexact, located=False)

    # -- subqueries -----------------------------------------------------------------------------------------------

    def _subquery(self) -> _Rel:
        r = self._r
        outer = self._any(0) if r.random() < 0.7 else self._table(0)
        own = r.choice([name for name in ("k", "id", "fk") if name in outer.columns])
        moving = ["users", "items"] if outer.table or own == "k" else ["codes"]
        inner = self._read(r.choice([*moving, *([] if outer.table else TIMED), "fixed"]))
        fixed = inner.text.endswith("fixed⟧")
        key = "code" if fixed else "id" if inner.table else "k"
        small = "weight" if fixed else "v" if inner.table else "n"
        sorts = ["IN", "IN", "NOT IN", "EXISTS", "EXISTS", "NOT EXISTS", "column"]
        # What a stream finds in a table is that of its own place in time.
        as_of = not outer.table and inner.table and inner.text != "codes"
        sort = r.choice(sorts if as_of else [*sorts, "scalar", "correlated scalar"])
        kind = "DataFrame" if fixed else "table" if inner.table else "stream"
        self._note(f"{sort} of a {kind} in a {'table' if outer.table else 'stream'}")
        shown = self._some(list(outer.columns), 1, 4)
        columns = {name: outer.columns[name] for name in shown}
        texts = [f"o.{name}" for name in shown]
        conditions = [self._condition(inner)] if r.random() < 0.5 else []
        if sort not in {"IN", "NOT IN", "scalar"}:
            conditions.append(f"i.{key} = o.{own}")
        if as_of:
            conditions.append("⟦true¦o.seq > i.from_ AND o.seq <= i.to_⟧")
        only = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        made = f"FROM {inner.versions if as_of else inner.text} AS i{only})"
        number = f"o.{'n' if 'n' in outer.columns else 'v'}"
        where = f" WHERE {self._condition(_replace(outer, columns=columns))}" if r.random() < 0.2 else ""
        match sort:
            case "IN" | "NOT IN":
                condition = f"o.{own} {sort} (SELECT {key} {made}"
            case "EXISTS" | "NOT EXISTS":
                condition = f"{sort} (SELECT 1 {made}"
            case "scalar":
                condition = f"{number} > (SELECT avg({small}) {made}"
            case "correlated scalar":
                condition = f"{number} > (SELECT max(i.{small}) {made}"
            case _:
                condition = ""
                texts.append(f"EXISTS (SELECT 1 {made} AS found")
                columns["found"] = "boolean"
        if condition:
            where = f"{where} AND {condition}" if where else f" WHERE {condition}"
        text = f"(SELECT {', '.join(texts)} FROM {outer.text} AS o{where})"
        return _Rel(text, columns, outer.table, inexact=outer.inexact, located=False)

    def _lateral(self) -> _Rel:
        r = self._r
        rel = self._any(0)
        small = "n" if "n" in rel.columns else "v"
        own = "k" if "k" in rel.columns else "id"
        sort = r.choice(["LATERAL VIEW", "LATERAL VIEW OUTER", "explode", "LATERAL subquery", "LATERAL join"])
        self._note(f"{sort} of a {'table' if rel.table else 'stream'}")
        array = (
            f"split(coalesce({r.choice(self._of(rel, 'string'))}, ''), 'a')"
            if r.random() < 0.5
            else f"sequence(1, pmod({small}, 3))"
        )
        columns = {own: rel.columns[own], small: "int"}
        match sort:
            case "explode":
                text = f"(SELECT {own}, {small}, explode({array}) AS item FROM {rel.text})"
            case "LATERAL subquery":
                text = f"(SELECT o.{own}, o.{small}, item FROM {rel.text} AS o, LATERAL (SELECT o.{small} + 1 AS item))"
            case "LATERAL join":
                most = f"SELECT max(v) AS v FROM codes WHERE codes.id = o.{own}"
                text = f"(SELECT o.{own}, o.{small}, i.v AS item FROM {rel.text} AS o, LATERAL ({most}) AS i)"
            case _:
                text = f"(SELECT {own}, {small}, item FROM {rel.text} {sort} explode({array}) items AS item)"
        return _Rel(text, {**columns, "item": "string"}, rel.table, located=False)

    # -- what has no end ------------------------------------------------------------------------------------------

    def _sorted(self) -> _Rel:
        r = self._r
        rel = self._any(1)
        self._note("Sort" if r.random() < 0.5 else "Limit")
        by = list(rel.unique) or list(rel.columns)[:1]
        text = f"SELECT {', '.join(rel.columns)} FROM {rel.text} ORDER BY {', '.join(by)} DESC"
        if self._made.nodes[-1] == "Limit":
            text += f" LIMIT {r.choice([1, 3])}"
        return _replace(rel, text=f"({text})", time=None)

    def _drawn(self) -> _Rel:
        r = self._r
        rel = self._any(0)
        sort = r.choice(["rand()", "rand() in a condition", "TABLESAMPLE", "now()"])
        self._note(sort)
        listed = ", ".join(rel.columns)
        match sort:
            case "rand()":
                return _replace(
                    rel,
                    text=f"(SELECT {listed}, rand() < 2 AS e FROM {rel.text})",
                    columns={**rel.columns, "e": "boolean"},
                )
            case "rand() in a condition":
                return _replace(rel, text=f"(SELECT {listed} FROM {rel.text} WHERE rand() < 2)")
            case "now()":
                return _replace(rel, text=f"(SELECT {listed} FROM {rel.text} WHERE current_date() > DATE'2020-01-01')")
            case _:
                return _replace(rel, text=f"(SELECT {listed} FROM {rel.text} TABLESAMPLE (100 PERCENT))")

    def _method_behind(self) -> _Rel:
        """Return rows whose duplicates a method drops: columns that are the same in each of them."""
        r = self._r
        rel = self._read(r.choice(TIMED))
        method = r.choice(["dropDuplicates", "dropDuplicatesWithinWatermark", "distinct"])
        self._note(method)
        names = self._some([name for name in self._of(rel, *_PLAIN) if name not in {"seq", "et"}], 1, 3)
        columns = {name: rel.columns[name] for name in names}
        nulls = self._left_out(rel, [(name, name, "") for name in names], window=False)
        conditions = [f"⟦true¦{name} IS NOT NULL⟧" for name in nulls]
        more = ""
        if method == "dropDuplicatesWithinWatermark":
            # Rows without a time all stay.
            more = ", et"
            conditions.append("et IS NOT NULL")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        self._made.method = method, () if method == "distinct" else (names,)
        text = f"(SELECT ⟦¦DISTINCT ⟧{', '.join(names)}⟦{more}¦⟧ FROM {rel.text}{where})"
        return _Rel(text, columns, False, located=False)


def _replace(rel: _Rel, **changes: Any) -> _Rel:
    fields = {name: getattr(rel, name) for name in _Rel.__slots__}
    made = _Rel(**{**fields, **changes})
    if "text" in changes and rel.versions is not None:
        made.versions = changes["text"].replace(f"FROM {rel.text}", f"FROM {rel.versions}", 1)
    return made
