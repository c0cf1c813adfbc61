"""Random Avro schemas that columns can be made of, rows of them, and what comes out of rows."""

import io
import struct

import fastavro
from hypothesis import strategies as st

_NUMBERS = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.characters(codec="utf-8"), max_size=12),
    "bytes": st.binary(max_size=12),
}


class Names:
    """Names of types must differ in one schema."""

    def __init__(self):
        self.number = 0

    def new(self):
        self.number += 1
        return f"T{self.number}"


@st.composite
def types(draw, names, depth):
    kinds = [*_NUMBERS, "enum", "fixed", "nullable", *(["record", "array", "map"] if depth > 0 else [])]
    kind = draw(st.sampled_from(kinds))
    if kind in _NUMBERS:
        return draw(st.sampled_from([kind, {"type": kind}]))
    if kind == "enum":
        return {"type": "enum", "name": names.new(), "symbols": ["RED", "GREEN", "BLUE"][: draw(st.integers(1, 3))]}
    if kind == "fixed":
        return {"type": "fixed", "name": names.new(), "size": draw(st.integers(1, 20))}
    if kind == "nullable":
        inner = draw(types(names, depth).filter(lambda one: not isinstance(one, list)))
        return draw(st.permutations(["null", inner]))
    if kind == "record":
        return draw(records(names, depth - 1))
    inner = draw(types(names, depth - 1))
    return {"type": "array", "items": inner} if kind == "array" else {"type": "map", "values": inner}


@st.composite
def records(draw, names, depth):
    fields = [{"name": f"f{number}", "type": draw(types(names, depth))} for number in range(draw(st.integers(1, 4)))]
    return {"type": "record", "name": names.new(), "fields": fields}


@st.composite
def schemas(draw, depth=2):
    return draw(records(Names(), depth))


def values(kind):
    """Return a strategy for the values of a type, as fastavro takes them."""
    if isinstance(kind, list):
        (inner,) = (one for one in kind if one != "null")
        return st.none() | values(inner)
    name = kind if isinstance(kind, str) else kind["type"]
    if name in _NUMBERS:
        return _NUMBERS[name]
    if name == "enum":
        return st.sampled_from(kind["symbols"])
    if name == "fixed":
        return st.binary(min_size=kind["size"], max_size=kind["size"])
    if name == "array":
        return st.lists(values(kind["items"]), max_size=3)
    if name == "map":
        return st.dictionaries(st.text("abc", max_size=3), values(kind["values"]), max_size=3)
    return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in kind["fields"]})


def written(schema, row):
    """Return the bytes that fastavro writes."""
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return data.getvalue()


def as_column(kind, value):
    """Return a value as Arrow gives it back."""
    if value is None:
        return None
    if isinstance(kind, list):
        (kind,) = (one for one in kind if one != "null")
    name = kind if isinstance(kind, str) else kind["type"]
    if name == "array":
        return [as_column(kind["items"], item) for item in value]
    if name == "map":
        return [(key, as_column(kind["values"], item)) for key, item in value.items()]
    if name == "record":
        return {field["name"]: as_column(field["type"], value[field["name"]]) for field in kind["fields"]}
    if name == "float":
        return struct.unpack("<f", struct.pack("<f", value))[0]
    return value
