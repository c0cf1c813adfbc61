"""An instance with a lookup in a table of groups, rows that name their topics, and ticks; else as `instance`."""

import instance
from pyspark.sql import Row, functions as F
from pyspark.sql.streaming import StatefulProcessor

from sparkrelay import Json, StreamsBuilder, String


class Since(StatefulProcessor):
    """Gives out at each tick what each user has spent since the one before."""

    def init(self, handle):
        self.spent = handle.getValueState("spent", "n long")

    def handleInputRows(self, key, rows, times):
        (before,) = self.spent.get() or (0,)
        self.spent.update((before + sum(row.n for row in rows),))
        return iter(())

    def handleTick(self, keys, times):
        for key in keys:
            if self.spent.exists():
                (n,) = self.spent.get()
                self.spent.clear()
                yield Row(user=key[0], spent=n)

    def close(self):
        pass


def pipeline(topics):
    builder = StreamsBuilder()
    orders = builder.stream(topics["orders"], key=String("user"), value=Json("id long, n long, at timestamp"))
    totals = orders.groupBy("user").agg(F.sum("n").alias("total"), F.count("*").alias("orders"))
    totals.to(topics["totals"], key="user", value=Json(without_key=True))
    probes = builder.stream(topics["probes"], key=String("probe"), value=Json("user string"), starting="earliest")
    probes.join(totals, "user", "left").to(topics["found"], value=Json())
    named = orders.withColumn("topic", F.when(F.col("n") < 50, topics["small"]).otherwise(topics["large"]))
    named.to(F.col("topic"), topics=[topics["small"], topics["large"]], value=Json())
    timed = orders.withWatermark("at", "1 minute").groupBy("user")
    spent = timed.transformWithState(Since(), "user string, spent long", "Append", "EventTime", tick="10 seconds")
    spent.to(topics["spent"], value=Json())
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
