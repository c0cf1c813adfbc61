"""Records what Java's own Protobuf library writes: `python -m tests.oracle.protobuf.record`.

The library is the one that ORC brings among PySpark's jars; `cases.jsonl` is what came out, and what the test compares
with.
"""

import base64
import json
from pathlib import Path

from tests.oracle.java import record
from tests.unit.records.test_protobuf import FILES

HERE = Path(__file__).parent

#: Messages in Protobuf's text, of the file in tests/unit/records/test_protobuf.py.
ORDERS = [
    "",
    (
        'id: -1 user: "" items { sku: "a" n: -3 } counts { key: "k" value: 5 } color: BLUE '
        'at { seconds: 1 nanos: 2000 } note { value: "x" } big: 18446744073709551615 raw: "\\377" '
        'first { sku: "f" } ratios: 0.5'
    ),
    "id: -9223372036854775808 big: 1 ratios: [0.1, -0.0, 1e308, inf, -inf] at { seconds: -1 nanos: 999999000 }",
    'user: "ä€😀" items { } items { sku: "b" } items { n: -2147483648 } note { } first { }',
    'counts { key: "" value: -1 } counts { key: "z" } id: 300',
    "id: 127 color: RED at { }",
]


def main():
    case = {
        "name": "orders",
        "files": base64.b64encode(FILES.SerializeToString(deterministic=True)).decode(),
        "message": "shop.Order",
        "texts": ORDERS,
    }
    _, library = record(HERE, json.dumps(case) + "\n", "orc-format-*", "jackson-*")
    print(f"{len(ORDERS)} messages, by {library}")


if __name__ == "__main__":
    main()
