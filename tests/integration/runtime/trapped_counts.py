"""A pipeline that counts, and fails as long as a file is there."""

from pathlib import Path

from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String


def counting(topics, trap=None):
    """Count by user; fail at the user `mouse` as long as the trap's file is there."""
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], key=String("user"), value=Json("n int"))
    if trap is not None:
        path = str(trap)

        @F.udf("boolean")
        def passes(user):
            if user == "mouse" and Path(path).exists():
                raise ValueError("trapped")
            return True

        stream = stream.where(passes("user"))
    stream.groupBy("user").count().to(topics[1])
    return builder
