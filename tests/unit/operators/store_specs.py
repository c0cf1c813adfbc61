"""What the spec of a step with a store says that tests of an operator alone do not look at."""

#: By field of ``StoreSpec``: one Spark partition, no changelog, nothing to connect to.
WITHOUT_KAFKA = {
    "subtopology": 0,
    "spark_partitions": 1,
    "client": {},
    "map_limit": 1 << 30,
    "failure_key": b"",
    "changelog": None,
    "compression": "none",
    "flush_seconds": 1,
}
