"""Queries that group bids without an end: q15, q16, q17, q18 and q19. Their answers are tables."""

# ruff: noqa: N812 - everybody writes `functions as F`

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F

from bench.nexmark.query import Sources, query

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkrelay import KStream, KTable

__all__ = ["q15", "q16", "q17", "q18", "q19"]

_RANKS = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
#: Counts of bids, and of who bids for what, in three ranks of price.
_COUNTS = {"total_bids": "count(*)"}
_COUNTS |= {f"{rank}_bids": f"count(*) FILTER (WHERE {price})" for rank, price in _RANKS.items()}
for _column in ("bidder", "auction"):
    _distinct = f"count(DISTINCT {_column})"
    _COUNTS[f"total_{_column}s"] = _distinct
    _COUNTS |= {f"{rank}_{_column}s": f"{_distinct} FILTER (WHERE {price})" for rank, price in _RANKS.items()}
_IN_SQL = ", ".join(f"{count} AS {name}" for name, count in _COUNTS.items())


def _counts() -> list[Column]:
    return [F.expr(count).alias(name) for name, count in _COUNTS.items()]


def _day() -> Column:
    return F.date_format("dateTime", "yyyy-MM-dd")


@query(truth=f"SELECT date_format(dateTime, 'yyyy-MM-dd') AS day, {_IN_SQL} FROM bid GROUP BY day")
def q15(sources: Sources) -> KTable:
    """Bidding statistics of each day: bids, and different bidders and auctions, in three ranks of price."""
    return sources.bids().groupBy(_day().alias("day")).agg(*_counts())


@query(
    truth=f"""
        SELECT channel, date_format(dateTime, 'yyyy-MM-dd') AS day, max(date_format(dateTime, 'HH:mm')) AS minute,
               {_IN_SQL}
        FROM bid GROUP BY channel, day
    """
)
def q16(sources: Sources) -> KTable:
    """Bidding statistics of each channel and day, and when the channel was last used."""
    groups = sources.bids().groupBy("channel", _day().alias("day"))
    return groups.agg(F.max(F.date_format("dateTime", "HH:mm")).alias("minute"), *_counts())


@query(
    truth="""
        SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
               count(*) FILTER (WHERE price < 10000) AS rank1_bids,
               count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
               count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
               min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, day
    """
)
def q17(sources: Sources) -> KTable:
    """Statistics of each auction and day: how many bids in three ranks of price, and of what prices."""
    return (
        sources.bids()
        .groupBy("auction", _day().alias("day"))
        .agg(
            F.count("*").alias("total_bids"),
            *(F.count_if(F.expr(price)).alias(f"{rank}_bids") for rank, price in _RANKS.items()),
            F.min("price").alias("min_price"),
            F.max("price").alias("max_price"),
            F.avg("price").alias("avg_price"),
            F.sum("price").alias("sum_price"),
        )
    )


@query(
    truth="""
        SELECT * EXCEPT (place) FROM (
            SELECT auction, bidder, price, channel, url, dateTime, extra, row_number() OVER (
                PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC, url, extra) AS place
            FROM bid
        ) WHERE place <= 1
    """
)
def q18(sources: Sources) -> KStream | KTable:
    """Find the last bid of each person for each auction; of several at the same time, the highest."""
    order = Window.partitionBy("bidder", "auction").orderBy(F.desc("dateTime"), F.desc("price"), "url", "extra")
    ranked = sources.bids().drop("kafka").withColumn("place", F.row_number().over(order))
    return ranked.where("place <= 1").drop("place")


@query(
    truth="""
        SELECT * FROM (
            SELECT auction, bidder, price, channel, url, dateTime, extra, row_number() OVER (
                PARTITION BY auction ORDER BY price DESC, dateTime, bidder, url, extra) AS rank_number
            FROM bid
        ) WHERE rank_number <= 10
    """
)
def q19(sources: Sources) -> KStream | KTable:
    """Find the ten highest bids of each auction, with their ranks; of equal prices the first bid is the higher one."""
    order = Window.partitionBy("auction").orderBy(F.desc("price"), "dateTime", "bidder", "url", "extra")
    ranked = sources.bids().drop("kafka").withColumn("rank_number", F.row_number().over(order))
    return ranked.where("rank_number <= 10")
