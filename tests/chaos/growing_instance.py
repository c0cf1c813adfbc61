"""An instance of one of three pipelines whose source topic changes while it runs; else as `instance`."""

import instance
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String


def pipeline(topics):
    builder = StreamsBuilder()
    orders = builder.stream(topics["orders"], key=String("user"), value=Json("id long"))
    if topics["kind"] == "stateless":
        orders.to(topics["out"], key=String("user"), value=Json())
        return builder.build()
    if topics["kind"] == "repartitioned":
        orders = orders.repartition("user", partitions=2)
    totals = orders.groupBy("user").agg(F.count("*").alias("n"), F.sum("id").alias("total"), name="totals")
    totals.to(topics["out"], value=Json())
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
