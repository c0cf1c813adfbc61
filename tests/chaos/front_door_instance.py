"""An instance whose pipeline is a query, and one that is a Structured Streaming script; else as `instance`."""

import instance
from pyspark.sql import SparkSession, functions as F

from sparkrelay import Json, StreamsBuilder, String, register_data_sources

TOTALS = """
    WITH placed AS (
        SELECT user, n FROM orders WHERE EXISTS (SELECT 1 FROM members WHERE members.user = orders.user)
    )
    SELECT user, count(*) AS orders, sum(n) AS total FROM placed GROUP BY user
"""


def pipeline(topics):
    builder = StreamsBuilder()
    builder.stream(topics["orders"], key=String("user"), value=Json("n long, at timestamp"), name="orders")
    builder.table(topics["members"], key=String("user"), value=Json("since long"), name="members")
    builder.sql(TOTALS, name="totals").to(topics["totals"], key=String("user"), value=Json())
    spark = SparkSession.getActiveSession()
    register_data_sources(spark)
    clicks = spark.readStream.format("sparkrelay")
    clicks = clicks.option("kafka.bootstrap.servers", topics["servers"]).option("subscribe", topics["clicks"])
    parsed = F.from_json(F.col("value").cast("string"), "user string, at timestamp, n long")
    rows = clicks.load().select(parsed.alias("click")).select("click.*").withWatermark("at", "1 minute")
    counts = rows.groupBy("user", F.window("at", "5 seconds")).agg(F.count("*").alias("n"), F.sum("n").alias("total"))
    builder.add(counts, topics["counts"], outputMode="append", queryName="counts")
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
