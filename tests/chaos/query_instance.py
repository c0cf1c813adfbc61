"""An instance that counts, and that is asked over HTTP; else as `instance`, which is beside it."""

import instance

from sparkrelay import Json, StreamsBuilder, String


def pipeline(topics):
    """One store."""
    builder = StreamsBuilder()
    rows = builder.stream(topics["rows"], key=String("user"), value=Json("n long"))
    rows.groupBy("user").count(name="counts").to(topics["counts"])
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
