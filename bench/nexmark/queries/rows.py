"""Queries that look at one bid at a time: q0, q1, q2, q10, q13, q14, q21 and q22."""

# ruff: noqa: N812 - everybody writes `functions as F`

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from bench.nexmark.query import Sources, query

if TYPE_CHECKING:
    from sparkrelay import KStream

__all__ = ["q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22"]


@query(truth="SELECT auction, bidder, price, dateTime, extra FROM bid")
def q0(sources: Sources) -> KStream:
    """Pass bids on as they are: what reading, decoding, encoding and writing cost."""
    return sources.bids().select("auction", "bidder", "price", "dateTime", "extra")


@query(truth="SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid")
def q1(sources: Sources) -> KStream:
    """Convert the prices of bids from dollars to euros."""
    return sources.bids().select("auction", "bidder", F.expr("0.908 * price").alias("price"), "dateTime", "extra")


@query(truth="SELECT auction, price FROM bid WHERE auction % 123 = 0")
def q2(sources: Sources) -> KStream:
    """Select the bids for certain auctions."""
    return sources.bids().where("auction % 123 = 0").select("auction", "price")


@query(
    truth="""
        SELECT auction, bidder, price, dateTime, extra,
               date_format(dateTime, 'yyyy-MM-dd') AS date, date_format(dateTime, 'HH:mm') AS time
        FROM bid
    """
)
def q10(sources: Sources) -> KStream:
    """Log bids, with the day and the minute by which a sink's files would be partitioned."""
    return sources.bids().select(
        *("auction", "bidder", "price", "dateTime", "extra"),
        F.date_format("dateTime", "yyyy-MM-dd").alias("date"),
        F.date_format("dateTime", "HH:mm").alias("time"),
    )


#: What q13 looks things up in: no topic, but something that stays as it is, such as a file.
_SIDE_INPUT = "SELECT id AS key, concat('value of ', id) AS value FROM range(10000)"


@query(
    truth=f"""
        SELECT auction, bidder, price, dateTime, value
        FROM bid JOIN ({_SIDE_INPUT}) ON auction % 10000 = key
    """
)
def q13(sources: Sources) -> KStream:
    """Look each bid's auction up in a bounded side input: a DataFrame."""
    side = sources.spark.sql(_SIDE_INPUT)
    bids = sources.bids().withColumn("key", F.col("auction") % 10000)
    return bids.join(side, "key", refresh="1 hour").select("auction", "bidder", "price", "dateTime", "value")


_TIME_OF_DAY = """
    CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
         WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
         ELSE 'otherTime' END
"""
_NUMBER_OF_C = "length(extra) - length(replace(extra, 'c', ''))"


@query(
    truth=f"""
        SELECT auction, bidder, 0.908 * price AS price, {_TIME_OF_DAY} AS bidTimeType, dateTime, extra,
               {_NUMBER_OF_C} AS c_counts
        FROM bid
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """
)
def q14(sources: Sources) -> KStream:
    """Calculate: bids of a middle price in euros, the time of day, and how often a letter comes in a text."""
    euros = sources.bids().withColumn("price", F.expr("0.908 * price"))
    return euros.where("price > 1000000 AND price < 50000000").select(
        *("auction", "bidder", "price"),
        F.expr(_TIME_OF_DAY).alias("bidTimeType"),
        *("dateTime", "extra"),
        F.expr(_NUMBER_OF_C).alias("c_counts"),
    )


_CHANNEL_ID = """
    CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
    ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END
"""


@query(
    truth=f"""
        SELECT auction, bidder, price, channel, {_CHANNEL_ID} AS channel_id
        FROM bid
        WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
           OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) != ''
    """
)
def q21(sources: Sources) -> KStream:
    """Give each bid the number of its channel: a hot channel's own one, or else the one that the URL has."""
    numbered = sources.bids().withColumn("channel_id", F.expr(_CHANNEL_ID))
    return numbered.where("channel_id IS NOT NULL").select("auction", "bidder", "price", "channel", "channel_id")


@query(
    truth="""
        SELECT auction, bidder, price, channel, split(url, '/')[3] AS dir1, split(url, '/')[4] AS dir2,
               split(url, '/')[5] AS dir3
        FROM bid
    """
)
def q22(sources: Sources) -> KStream:
    """Take the first three parts of the path out of each bid's URL."""
    parts = (F.split_part("url", F.lit("/"), F.lit(number)).alias(f"dir{number - 3}") for number in (4, 5, 6))
    return sources.bids().select("auction", "bidder", "price", "channel", *parts)
