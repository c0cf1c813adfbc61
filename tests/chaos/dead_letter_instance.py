"""An instance that goes on without the records that do not decode, or make its function fail; else as `instance`."""

import instance
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String


def pipeline(topics):
    def checked(id_):
        if id_ % 29 == 5:
            raise ValueError(f"no {id_}")
        return id_

    builder = StreamsBuilder()
    orders = builder.stream(topics["orders"], key=String("user"), value=Json("id long"))
    kept = orders.select("user", F.udf(checked, "long")("id").alias("id"))
    kept.groupBy("user").agg(F.count("*").alias("n"), F.sum("id").alias("total")).to(topics["totals"], value=Json())
    orders.select("id").to(topics["ids"], value=Json())
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
