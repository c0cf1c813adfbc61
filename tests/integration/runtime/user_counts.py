"""A pipeline that counts records by user, and the rows that it writes."""

from sparkrelay import Json, StreamsBuilder, String


def counting(source, sink, behind=lambda table: table):
    """Return a builder of the pipeline, perhaps with steps behind the table; its store is called `users`."""
    builder = StreamsBuilder()
    table = builder.stream(source, key=String("user"), value=Json("n int")).groupBy("user").count(name="users")
    behind(table).to(sink)
    return builder


def counts(**users):
    """Return the sink's rows by key."""
    return {user.encode(): {"user": user, "count": count} for user, count in users.items()}
