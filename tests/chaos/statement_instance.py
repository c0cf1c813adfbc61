"""An instance with running aggregates, and with tables joined by what is no key; else as `instance`."""

import instance

from sparkrelay import Json, StreamsBuilder, String

BY = "(PARTITION BY user ORDER BY at"
RUNNING = f"""SELECT user, id, sum(n) OVER {BY} ROWS UNBOUNDED PRECEDING) AS total, lag(id) OVER {BY}) AS before,
    sum(n) OVER {BY} RANGE BETWEEN INTERVAL 10 SECONDS PRECEDING AND CURRENT ROW) AS recent FROM orders"""
NEAR = "SELECT id, shop, people.age, shops.size FROM people FULL JOIN shops ON people.city = shops.city"
OLDER = "SELECT id, age FROM people WHERE age > (SELECT avg(size) FROM shops)"


def pipeline(topics):
    builder = StreamsBuilder()
    orders = builder.stream(topics["orders"], key=String("user"), value=Json("id long, n long, at timestamp"))
    orders.withWatermark("at", "1 minute").createOrReplaceTempView("orders")
    builder.sql(RUNNING, name="running").to(topics["running"], value=Json())
    builder.table(topics["people"], key=String("id"), value=Json("city string, age long"), name="people")
    builder.table(topics["shops"], key=String("shop"), value=Json("city string, size long"), name="shops")
    builder.sql(NEAR).to(topics["near"], value=Json())
    builder.sql(OLDER).to(topics["older"], value=Json())
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
