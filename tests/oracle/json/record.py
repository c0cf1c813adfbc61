"""Records what Java's Jackson writes, which serializers of JSON Schema use: `python -m tests.oracle.json.record`.

The library is the one among PySpark's jars; `cases.jsonl` is what came out, and what the test compares with.
"""

import json
from pathlib import Path

from tests.oracle.java import record

HERE = Path(__file__).parent
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "ratio": {"type": "number"},
        "small": {"type": "number"},
        "amount": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "ok": {"type": ["null", "boolean"]},
        "items": {
            "type": ["null", "array"],
            "items": {"type": "object", "properties": {"sku": {"type": "string"}, "n": {"type": "integer"}}},
        },
        "counts": {"type": ["null", "object"], "additionalProperties": {"type": ["null", "integer"]}},
        "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
        "day": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
        "raw": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "any": {},
    },
}


def main():
    said, library = record(HERE, json.dumps({"schema": SCHEMA}), "jackson-databind-*", "jackson-*")
    print(f"{len(json.loads(said)['written'])} objects, by {library}")


if __name__ == "__main__":
    main()
