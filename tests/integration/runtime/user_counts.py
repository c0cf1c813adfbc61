"""A pipeline that counts records by user, and the rows that it writes."""

from sparkrelay import Json, StreamsBuilder, String


def counting(source, sink):
    """Return a builder of the pipeline; its store is called `users`."""
    builder = StreamsBuilder()
    builder.stream(source, key=String("user"), value=Json("n int")).groupBy("user").count(name="users").to(sink)
    return builder


def counts(**users):
    """Return the sink's rows by key."""
    return {user.encode(): {"user": user, "count": count} for user, count in users.items()}
