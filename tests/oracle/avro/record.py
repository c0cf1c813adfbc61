"""Records what Java's own Avro library makes of the cases below: `python -m tests.oracle.avro.record`.

The library is the one among PySpark's jars; `cases.jsonl` is what came out, and what the test compares with.
"""

import json
from pathlib import Path

from tests.oracle.java import record as record_java

HERE = Path(__file__).parent


def record(*fields, name="R"):
    names = ("name", "type", "default", "aliases")
    return {"type": "record", "name": name, "fields": [dict(zip(names, one, strict=False)) for one in fields]}


def enum(*symbols, **more):
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


ALL = record(
    ("b", "boolean"), ("i", "int"), ("l", "long"), ("f", "float"), ("d", "double"), ("s", "string"), ("raw", "bytes"),
    ("fixed", {"type": "fixed", "name": "F", "size": 3}), ("word", enum("A", "B")),
    ("list", {"type": "array", "items": ["null", "long"]}), ("map", {"type": "map", "values": "string"}),
    ("inner", ["null", record(("x", "int"), ("y", {"type": "array", "items": "F"}), name="I")]),
    ("deep", {"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "int"}}}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}), ("day", {"type": "int", "logicalType": "date"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}),
    ("fprice", {"type": "fixed", "name": "P", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 0}),
)  # fmt: skip
FULL = {
    "b": True, "i": -(2**31), "l": 2**63 - 1, "f": 1.5, "d": -0.1, "s": "ä€😀", "raw": "\u00ff\u0000", "fixed": "abc",
    "word": "B", "list": [{"long": 1}, None, {"long": -1}], "map": {"k": "v"},
    "inner": {"I": {"x": 7, "y": ["abc", "def"]}}, "deep": [{"a": [1, 2], "b": []}, {}], "at": -1, "day": 20000,
    "price": "\u0000\u0080", "fprice": "\u00ff" * 16,
}  # fmt: skip
EMPTY = {
    "b": False, "i": 0, "l": -(2**63), "f": 0.0, "d": 0.0, "s": "", "raw": "", "fixed": "\0\0\0", "word": "A",
    "list": [], "map": {}, "inner": None, "deep": [], "at": 0, "day": 0, "price": "\0", "fprice": "\0" * 16,
}  # fmt: skip
PROMOTIONS = [
    ("int", "long", [-1]), ("int", "float", [3]), ("int", "double", [2**31 - 1]), ("long", "float", [2**40]),
    ("long", "double", [2**60]), ("float", "double", [0.1]), ("string", "bytes", ["ä"]), ("bytes", "string", ["abc"]),
    ("long", "int", [1]), ("double", "float", [1.0]), ("string", "int", ["1"]), ("boolean", "int", [True]),
    (["null", "int"], ["null", "long"], [None, {"int": 5}]), (["null", "int"], "long", [None, {"int": 5}]),
    ("int", ["null", "long"], [5]), (["int", "string"], "string", [{"string": "x"}, {"int": 1}]),
    (["null", "int", "string"], ["null", "double"], [None, {"int": 1}, {"string": "x"}]),
    (enum("A", "B", "C"), enum("C", "A", default="A"), ["A", "B", "C"]), (enum("A", "B"), enum("A"), ["A", "B"]),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [[1, 2], []]),
    ({"type": "map", "values": "int"}, {"type": "map", "values": ["null", "long"]}, [{"a": 1}, {}]),
]  # fmt: skip
EVOLVED = [
    (record(("a", "int"), ("b", "string")), record(("b", "string"), ("a", "long")), [{"a": 1, "b": "x"}]),
    (ALL, record(("s", "string"), ("l", "long")), [FULL, EMPTY]),
    (ALL, record(("day", "int"), ("deep", ALL["fields"][12]["type"]), ("new", ["null", "int"], None)), [FULL, EMPTY]),
    (record(("a", "int")), record(("a", "int"), ("c", "string", "ä")), [{"a": 1}]),
    (record(("a", "int")), record(("c", "int")), [{"a": 1}]),
    (record(("a", "int")), record(("c", "int", 5, ["a"])), [{"a": 1}]),
    (record(("a", "int")), record(("a", "int"), ("m", {"type": "map", "values": "int"}, {"k": 1}),
                                  ("l", {"type": "array", "items": ["null", "int"]}, [None])), [{"a": 1}]),
    (record(("i", {"type": "array", "items": record(("x", "int"), name="I")})),
     record(("i", {"type": "array", "items": record(("y", "double", 0.5), ("x", "long"), name="I")})),
     [{"i": [{"x": 1}, {"x": 2}]}, {"i": []}]),
    (record(("r", record(("x", "int"), name="I"))),
     record(("r", record(("x", "int"), ("z", "bytes", "\u00fe"), name="I"))),
     [{"r": {"x": 1}}]),
]  # fmt: skip


def cases():
    yield {"name": "every type", "writer": ALL, "rows": [FULL, EMPTY]}
    for number in (0, 1, -1, 63, 64, -64, -65, 2**31, -(2**31), 2**55, 2**62):
        yield {"name": f"long {number}", "writer": "long", "rows": [number]}
    for number, (writer, reader, values) in enumerate(PROMOTIONS):
        rows = [{"a": value} for value in values]
        both = {"writer": record(("a", writer)), "reader": record(("a", reader))}
        yield {"name": f"promotion {number}", **both, "rows": rows}
    for number, (writer, reader, rows) in enumerate(EVOLVED):
        yield {"name": f"evolved {number}", "writer": writer, "reader": reader, "rows": rows}


def main():
    given = "".join(json.dumps(case) + "\n" for case in cases())
    said, library = record_java(HERE, given, "avro-1*", "jackson-*", "slf4j-api*", "commons-compress*")
    print(f"{len(said.splitlines())} cases, by {library}")


if __name__ == "__main__":
    main()
