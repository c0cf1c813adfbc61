"""TPC-H's tables: their columns, and changes of their rows."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from sparkrelay import Json, Long, String

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkrelay import StreamsBuilder

    Row = dict[str, Any]

#: Each table's columns, the key first.
_COLUMNS: Final = """
region: r_regionkey long, r_name string, r_comment string
nation: n_nationkey long, n_name string, n_regionkey long, n_comment string
supplier: s_suppkey long, s_name string, s_address string, s_nationkey long, s_phone string, s_acctbal money,
    s_comment string
part: p_partkey long, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, p_container string,
    p_retailprice money, p_comment string
partsupp: ps_key string, ps_partkey long, ps_suppkey long, ps_availqty int, ps_supplycost money, ps_comment string
customer: c_custkey long, c_name string, c_address string, c_nationkey long, c_phone string, c_acctbal money,
    c_mktsegment string, c_comment string
orders: o_orderkey long, o_custkey long, o_orderstatus string, o_totalprice money, o_orderdate date,
    o_orderpriority string, o_clerk string, o_shippriority int, o_comment string
lineitem: l_key string, l_orderkey long, l_partkey long, l_suppkey long, l_linenumber int, l_quantity money,
    l_extendedprice money, l_discount money, l_tax money, l_returnflag string, l_linestatus string, l_shipdate date,
    l_commitdate date, l_receiptdate date, l_shipinstruct string, l_shipmode string, l_comment string
"""
#: Table -> its columns as SQL has them.
SCHEMAS: Final = {
    name: " ".join(columns.split()).replace("money", "decimal(12,2)")
    for name, columns in re.findall(r"^(\w+): ((?:.|\n )*)", _COLUMNS, re.MULTILINE)
}
_SUPPLIERS, _PARTS, _CUSTOMERS, _ORDERS = 10_000, 200_000, 150_000, 1_500_000
_SUPPLIERS_OF_A_PART: Final = 4
_MOST_LINES: Final = 7
_REGIONS: Final = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
#: Nations by the number of their region.
_NATIONS: Final = (
    ("ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"),
    ("ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"),
    ("INDIA", "INDONESIA", "JAPAN", "CHINA", "VIETNAM"),
    ("FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"),
    ("EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"),
)
_COLOURS: Final = ("almond", "azure", "blue", "forest", "green", "khaki", "lemon", "plum", "red", "white")
_KINDS: Final = (
    ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"),
    ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"),
    ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER"),
)
_CONTAINERS: Final = (("SM", "MED", "JUMBO", "WRAP", "LG"), ("CASE", "BOX", "BAG", "JAR", "PACK", "PKG", "CAN", "DRUM"))
_SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_PRIORITIES: Final = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_MODES: Final = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
_INSTRUCTIONS: Final = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_FIRST, _TODAY, _LAST = date(1992, 1, 1), date(1995, 6, 17), date(1998, 8, 2)
_WORDS: Final = (
    "carefully",
    "special",
    "pending",
    "requests",
    "deposits",
    "Customer",
    "Complaints",
    "quick",
    "accounts",
)


@dataclass(frozen=True, slots=True)
class Change:
    """A row as it came to be; None where it was deleted."""

    table: str
    key: int | str
    row: Row | None


def declared(builder: StreamsBuilder) -> None:
    """Read the tables from topics of their names."""
    for table, columns in SCHEMAS.items():
        key, _, rest = columns.partition(", ")
        name, kind = key.split()
        builder.table(table, key=Long(name) if kind == "long" else String(name), value=Json(rest), name=table)


def key_of(table: str) -> str:
    """Return the name of a table's key column."""
    return SCHEMAS[table].partition(" ")[0]


def changes(scale: float, seed: int = 0) -> list[Change]:
    """Return changes of all tables, in the order in which they come.

    Most rows come once. Some have been others before, some go, and some of those come back.

    Args:
        scale: 1 is TPC-H's: 1.5 million orders.
        seed: of what is drawn.
    """
    draw = random.Random(seed)
    made: list[tuple[float, Change]] = []
    for table, key, row in _rows(scale, draw):
        versions: list[Row | None] = [row()]
        chance = draw.random()
        if chance < 0.1:
            versions.insert(0, row())
        elif chance < 0.15:
            versions.append(None)
        elif chance < 0.18:
            versions += [None, row()]
        times = sorted(draw.random() for _ in versions)
        made += ((time, Change(table, key, one)) for time, one in zip(times, versions, strict=True))
    return [change for _, change in sorted(made, key=lambda one: one[0])]


def _rows(scale: float, draw: random.Random) -> Iterator[tuple[str, int | str, Callable[[], Row]]]:
    """Yield tables, keys, and what makes a row of each: another one each time."""
    suppliers, parts, customers, orders = (
        max(2, int(count * scale)) for count in (_SUPPLIERS, _PARTS, _CUSTOMERS, _ORDERS)
    )
    nations = [(name, region) for region, names in enumerate(_NATIONS) for name in names]
    for number, name in enumerate(_REGIONS):
        yield "region", number, lambda name=name: {"r_name": name, "r_comment": _comment(draw)}
    for number, (name, region) in enumerate(nations):
        yield (
            "nation",
            number,
            lambda name=name, region=region: {"n_name": name, "n_regionkey": region, "n_comment": _comment(draw)},
        )
    for number in range(1, suppliers + 1):
        yield "supplier", number, lambda number=number: _party(draw, "s", "Supplier", number)
    for number in range(1, parts + 1):
        yield "part", number, lambda: _part(draw)
        for supplier in draw.sample(range(1, suppliers + 1), min(_SUPPLIERS_OF_A_PART, suppliers)):
            own = {"ps_partkey": number, "ps_suppkey": supplier}
            yield "partsupp", f"{number}-{supplier}", lambda own=own: _supply(draw, own)
    for number in range(1, customers + 1):
        yield (
            "customer",
            number,
            lambda number=number: {**_party(draw, "c", "Customer", number), "c_mktsegment": draw.choice(_SEGMENTS)},
        )
    for number in range(1, orders + 1):
        # A third of the customers have no order.
        customer = draw.randint(1, max(1, customers * 2 // 3))
        day = _day(draw, _FIRST, _LAST - timedelta(151))
        yield "orders", number, lambda customer=customer, day=day: _order(draw, customer, day)
        for line in range(1, draw.randint(1, _MOST_LINES) + 1):
            own = {"l_orderkey": number, "l_linenumber": line}
            yield "lineitem", f"{number}-{line}", lambda own=own, day=day: _line(draw, own, day, parts, suppliers)


def _party(draw: random.Random, prefix: str, name: str, number: int) -> Row:
    nation = draw.randrange(25)
    return {
        f"{prefix}_name": f"{name}#{number:09}",
        f"{prefix}_address": f"{draw.randrange(10_000)} Street",
        f"{prefix}_nationkey": nation,
        f"{prefix}_phone": f"{nation + 10}-{draw.randrange(100, 1000)}-{draw.randrange(100, 1000)}",
        f"{prefix}_acctbal": _money(draw, -99_999, 999_999),
        f"{prefix}_comment": _comment(draw),
    }


def _part(draw: random.Random) -> Row:
    maker = draw.randint(1, 5)
    return {
        "p_name": " ".join(draw.sample(_COLOURS, 3)),
        "p_mfgr": f"Manufacturer#{maker}",
        "p_brand": f"Brand#{maker}{draw.randint(1, 5)}",
        "p_type": " ".join(map(draw.choice, _KINDS)),
        "p_size": draw.randint(1, 50),
        "p_container": " ".join(map(draw.choice, _CONTAINERS)),
        "p_retailprice": _money(draw, 90_000, 200_000),
        "p_comment": _comment(draw),
    }


def _supply(draw: random.Random, own: Row) -> Row:
    cost = _money(draw, 100, 100_000)
    return {**own, "ps_availqty": draw.randint(1, 9999), "ps_supplycost": cost, "ps_comment": _comment(draw)}


def _order(draw: random.Random, customer: int, day: date) -> Row:
    return {
        "o_custkey": customer,
        "o_orderstatus": draw.choice("FOP"),
        "o_totalprice": _money(draw, 100_000, 50_000_000),
        "o_orderdate": day,
        "o_orderpriority": draw.choice(_PRIORITIES),
        "o_clerk": f"Clerk#{draw.randrange(1000):09}",
        "o_shippriority": 0,
        "o_comment": _comment(draw),
    }


def _line(draw: random.Random, own: Row, ordered: date, parts: int, suppliers: int) -> Row:
    shipped = ordered + timedelta(draw.randint(1, 121))
    received = shipped + timedelta(draw.randint(1, 30))
    quantity = draw.randint(1, 50)
    return {
        **own,
        "l_partkey": draw.randint(1, parts),
        "l_suppkey": draw.randint(1, suppliers),
        "l_quantity": Decimal(quantity),
        "l_extendedprice": quantity * _money(draw, 90_000, 200_000),
        "l_discount": _money(draw, 0, 10),
        "l_tax": _money(draw, 0, 8),
        "l_returnflag": draw.choice("RA") if received <= _TODAY else "N",
        "l_linestatus": "O" if shipped > _TODAY else "F",
        "l_shipdate": shipped,
        "l_commitdate": ordered + timedelta(draw.randint(30, 90)),
        "l_receiptdate": received,
        "l_shipinstruct": draw.choice(_INSTRUCTIONS),
        "l_shipmode": draw.choice(_MODES),
        "l_comment": _comment(draw),
    }


def _day(draw: random.Random, first: date, last: date) -> date:
    return first + timedelta(draw.randrange((last - first).days + 1))


def _money(draw: random.Random, least: int, most: int) -> Decimal:
    return Decimal(draw.randint(least, most)).scaleb(-2)


def _comment(draw: random.Random) -> str:
    return " ".join(draw.choices(_WORDS, k=3))
