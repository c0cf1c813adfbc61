"""An instance whose micro-batches go into an SQLite database; else as `instance`, which is beside it."""

import functools
import json
import sqlite3

import instance
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String


def write(kind, path, df, batch_id):
    """Note the call, whatever comes of it; then write the rows unless the ledger has the batch."""
    rows = [json.dumps([*row]) for row in df.collect()]
    call = batch_id.txn_app_id, batch_id.task, batch_id
    with sqlite3.connect(path, timeout=60) as database:
        database.execute("INSERT INTO calls VALUES (?, ?, ?, ?)", (*call, "\n".join(rows)))
    with sqlite3.connect(path, timeout=60) as database:
        if database.execute("INSERT OR IGNORE INTO ledger VALUES (?, ?)", (call[0], call[2])).rowcount:
            database.executemany(f"INSERT INTO {kind} VALUES (?)", [(row,) for row in rows])


def pipeline(topics):
    """Rows as they come, rows behind a store, and final rows behind a watermark, of two topics in one task."""
    builder = StreamsBuilder()
    orders = builder.stream(
        [topics["orders"], topics["returns"]], key=String("user"), value=Json("id long, amount long, at timestamp")
    )
    path = topics["database"]
    orders.select("id", "user", "amount").foreachBatch(functools.partial(write, "plain", path), name="plain")
    totals = orders.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("total"), name="totals")
    totals.to_stream().foreachBatch(functools.partial(write, "totals", path), name="totals-sink")
    timed = orders.withWatermark("at", "1 second").groupBy(F.window("at", "5 seconds"), "user")
    windows = timed.agg(F.count("*").alias("n"), name="windows").outputMode("append")
    windows.select("user", F.col("window.start").cast("long").alias("start"), "n").foreachBatch(
        functools.partial(write, "windows", path), name="windows-sink"
    )
    return builder.build()


if __name__ == "__main__":
    instance.run(pipeline)
