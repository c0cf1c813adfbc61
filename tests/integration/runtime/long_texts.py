"""A pipeline whose state takes as much room as is sent, and who writes for it."""

from sparkrelay import Json, StreamsBuilder, String

SIZE = 1_500


def keeping(source, sink):
    """Keep the longest text of each user: as many bytes of state as are sent."""
    builder = StreamsBuilder()
    from pyspark.sql import functions as F

    stream = builder.stream(source, key=String("user"), value=Json("t string"))
    stream.groupBy("user").agg(F.max("t").alias("t"), name="users").to(sink)
    return builder


class Users:
    """Writes users with their texts, and knows the table."""

    def __init__(self, produce, topic):
        self._produce, self._topic = produce, topic
        self.table = {}

    def write(self, first, last, size=SIZE):
        rows = [(f"u{n}", {"t": f"{n:08}".ljust(size, "x")}) for n in range(first, last)]
        self._produce(self._topic, rows)
        self.table |= {user.encode(): {"user": user, **value} for user, value in rows}
