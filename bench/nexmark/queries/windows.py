"""Queries by time: q5, q7, q8, q11 and q12. Each row is written once, when its window is over."""

# ruff: noqa: N812 - everybody writes `functions as F`

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F

from bench.nexmark.query import LATE, Sources, query

if TYPE_CHECKING:
    from sparkrelay import KStream

__all__ = ["q5", "q7", "q8", "q11", "q12"]


@query(
    truth="""
        WITH counts AS (
            SELECT auction, window.start AS starts, window.end AS ends, count(*) AS num
            FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
        )
        SELECT auction, num, starts, ends
        FROM counts JOIN (SELECT ends, max(num) AS most FROM counts GROUP BY ends) USING (ends)
        WHERE num = most
    """,
    final=True,
)
def q5(sources: Sources) -> KStream:
    """Hot items: every two seconds, the auctions with the most bids of the last ten seconds.

    Each count goes on as it grows, not once it is final: a partition that has no bids for a while would have its final
    counts come later than the others', and late. A smaller count of the same auction is beaten by its larger one.
    Windows end every two seconds, at times that a tumbling window of two seconds begins with: all counts of one end are
    in one of those, and the largest of it have rank 1. A window ends up to ten seconds after its newest bid.
    """
    bids = sources.bids().withWatermark("dateTime", LATE)
    windows = bids.groupBy("auction", F.window("dateTime", "10 seconds", "2 seconds"))
    counts = windows.agg(F.count("*").alias("num")).to_stream()
    counts = counts.selectExpr("auction", "num", "window.start AS starts", "window.end AS ends")
    ended = counts.withWatermark("ends", "20 seconds").withColumn("ended", F.window("ends", "2 seconds"))
    hot = _first(ended, "ended", "num")
    return hot.select("auction", "num", "starts", "ends")


@query(
    truth="""
        WITH timed AS (SELECT *, window(dateTime, '10 seconds').end AS ends FROM bid)
        SELECT auction, price, bidder, dateTime, extra, ends
        FROM timed JOIN (SELECT ends, max(price) AS price FROM timed GROUP BY ends) USING (ends, price)
    """,
    final=True,
)
def q7(sources: Sources) -> KStream:
    """Highest bids: of every ten seconds, the bids with the highest price."""
    bids = sources.bids().withWatermark("dateTime", LATE).withColumn("tens", F.window("dateTime", "10 seconds"))
    highest = _first(bids, "tens", "price")
    return highest.select("auction", "price", "bidder", "dateTime", "extra", F.col("tens.end").alias("ends"))


def _first(rows: KStream, window: str, by: str) -> KStream:
    """Return those rows of each window that have the largest number in a column, once the window is over.

    They come together in one task, so that its clock sees every window. What others have beaten in its micro-batch does
    not go there, so few rows do.
    """
    rank = F.rank().over(Window.partitionBy(window).orderBy(F.desc(by)))
    ranked = rows.repartition(window, partitions=1).withColumn("place", rank)
    return ranked.where("place = 1").outputMode("append")


@query(
    truth="""
        SELECT id, name, starts
        FROM (SELECT DISTINCT id, name, window(dateTime, '10 seconds').start AS starts FROM person)
        JOIN (SELECT DISTINCT seller AS id, window(dateTime, '10 seconds').start AS starts FROM auction)
        USING (id, starts)
    """,
    final=True,
)
def q8(sources: Sources) -> KStream:
    """Monitor new users: people who registered and opened an auction in the same ten seconds.

    Who opened one need not be counted before: whoever finds an auction of theirs, or several, goes on once.
    """
    people = sources.people().withWatermark("dateTime", LATE)
    registered = people.groupBy("id", "name", F.window("dateTime", "10 seconds")).agg(F.count("*").alias("n"))
    registered = registered.outputMode("append").selectExpr("id", "name", "window.start AS starts")
    opened = sources.auctions().selectExpr("seller AS id", "window(dateTime, '10 seconds').start AS opened")
    return registered.withWatermark("starts", LATE).join(
        opened.withWatermark("opened", LATE), "id", "left_semi", within="0 seconds"
    )


@query(
    truth="""
        SELECT bidder, count(*) AS bid_count, session_window.start AS starts, session_window.end AS ends
        FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')
    """,
    final=True,
)
def q11(sources: Sources) -> KStream:
    """User sessions: how many bids each person made without a pause of ten seconds."""
    bids = sources.bids().withWatermark("dateTime", LATE)
    sessions = bids.groupBy("bidder", F.session_window("dateTime", "10 seconds"))
    counts = sessions.agg(F.count("*").alias("bid_count")).outputMode("append")
    return counts.selectExpr("bidder", "bid_count", "session_window.start AS starts", "session_window.end AS ends")


@query(
    truth="""
        SELECT bidder, count(*) AS bid_count, window.start AS starts, window.end AS ends
        FROM bid GROUP BY bidder, window(arrived, '10 seconds')
    """,
    final=True,
)
def q12(sources: Sources) -> KStream:
    """Processing time windows: how many bids of each person arrived in every ten seconds.

    Windows by the clock of whoever happens to process a record would give another answer each time that it is read.
    What a record has of its arrival is its timestamp: of a topic with ``LogAppendTime`` the broker's clock.
    """
    bids = sources.bids().select("bidder", F.col("kafka.timestamp").alias("arrived")).withWatermark("arrived", LATE)
    tens = bids.groupBy("bidder", F.window("arrived", "10 seconds"))
    counts = tens.agg(F.count("*").alias("bid_count")).outputMode("append")
    return counts.selectExpr("bidder", "bid_count", "window.start AS starts", "window.end AS ends")
