"""An instance that looks into a table with a history, once at once and once after waiting; else as `instance`."""

import instance

from sparkrelay import Json, StreamsBuilder, String


def pipeline(topics):
    builder = StreamsBuilder()
    kept = {"timestamp": "since", "history": "1 hour", "name": "rates"}
    rates = builder.table(topics["rates"], key=String("user"), value=Json("rate long, since timestamp"), **kept)
    orders = builder.stream(topics["orders"], key=String("user"), value=Json("id long, at timestamp"), timestamp="at")
    timed = orders.withWatermark("at", "0 seconds")
    timed.join(rates, "user", "left").select("id", "rate").to(topics["found"], value=Json())
    waiting = timed.join(rates, "user", "left", grace="5 seconds", name="waiting")
    waiting.select("id", "rate").to(topics["awaited"], value=Json())
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
