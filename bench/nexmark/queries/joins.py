"""Queries that join the three streams: q3, q4, q6, q9, q20 and q23.

SQL joins them whatever time is between two rows, and so keeps all rows for ever. Here state ends: rows are at most a
year apart (``EVER``), and of those of one auction the bids that count are in the auction's own time.
"""

# ruff: noqa: N812 - everybody writes `functions as F`

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window, functions as F

from bench.nexmark.query import EVER, LATE, Sources, query

if TYPE_CHECKING:
    from sparkrelay import KStream, KTable

__all__ = ["q3", "q4", "q6", "q9", "q20", "q23"]


@query(
    truth="""
        SELECT name, city, state, auction.id AS id
        FROM auction JOIN person ON seller = person.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
    """
)
def q3(sources: Sources) -> KStream:
    """Local items: who sells in certain states, with the auctions of one category that they open."""
    auctions = sources.auctions().where("category = 10").select("id", "seller", "dateTime")
    people = sources.people().where("state IN ('OR', 'ID', 'CA')")
    people = people.select(F.col("id").alias("seller"), "name", "city", "state", F.col("dateTime").alias("registered"))
    sold = auctions.withWatermark("dateTime", LATE).join(
        people.withWatermark("registered", LATE), "seller", within=EVER
    )
    return sold.select("name", "city", "state", "id")


def _bids_in_time(sources: Sources) -> KStream:
    """Bids with their auctions, as far as they came between its opening and its end."""
    bids = sources.bids().select(
        *("auction", "bidder", "price", F.col("dateTime").alias("bid_dateTime"), F.col("extra").alias("bid_extra"))
    )
    auctions = sources.auctions().withColumn("auction", F.col("id"))
    # A bid may come before its auction: both streams are a little out of order.
    joined = auctions.withWatermark("dateTime", LATE).join(
        bids.withWatermark("bid_dateTime", LATE), "auction", within=("0 seconds", EVER)
    )
    return joined.where("bid_dateTime BETWEEN dateTime AND expires")


_IN_TIME = """
    in_time AS (
        SELECT auction.*, auction, bidder, price, bid.dateTime AS bid_dateTime, bid.extra AS bid_extra
        FROM auction JOIN bid ON auction.id = bid.auction AND bid.dateTime BETWEEN auction.dateTime AND expires
    )
"""
_WINNING = f"""
    {_IN_TIME}, winning AS (
        SELECT * EXCEPT (place) FROM (
            SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_dateTime, bidder, bid_extra) AS place
            FROM in_time
        ) WHERE place = 1
    )
"""


@query(
    truth=f"""
        WITH {_IN_TIME}
        SELECT category, avg(final) AS average
        FROM (SELECT id, category, max(price) AS final FROM in_time GROUP BY id, category) GROUP BY category
    """
)
def q4(sources: Sources) -> KTable:
    """Average price for a category: of the highest bids of its auctions, so a higher bid takes the place of one."""
    highest = _bids_in_time(sources).groupBy("id", "category").agg(F.max("price").alias("final"))
    return highest.groupBy("category").agg(F.avg("final").alias("average"))


def _winning(sources: Sources) -> KStream | KTable:
    """Each auction with its highest bid, of equal ones the first."""
    order = Window.partitionBy("id").orderBy(F.desc("price"), "bid_dateTime", "bidder", "bid_extra")
    ranked = _bids_in_time(sources).withColumn("place", F.row_number().over(order))
    return ranked.where("place <= 1").drop("place")


@query(
    truth=f"""
        WITH {_WINNING}, latest AS (
            SELECT *, row_number() OVER (PARTITION BY seller ORDER BY bid_dateTime DESC, id DESC) AS place FROM winning
        )
        SELECT seller, avg(price) AS average FROM latest WHERE place <= 10 GROUP BY seller
    """
)
def q6(sources: Sources) -> KTable:
    """Average price for a seller: of the last ten of its auctions that have a winning bid, by the time of that bid."""
    order = Window.partitionBy("seller").orderBy(F.desc("bid_dateTime"), F.desc("id"))
    last = _winning(sources).withColumn("place", F.row_number().over(order)).where("place <= 10")
    return last.groupBy("seller").agg(F.avg("price").alias("average"))


@query(truth=f"WITH {_WINNING} SELECT * FROM winning")
def q9(sources: Sources) -> KStream | KTable:
    """Winning bids: each auction with its highest bid in time, of equal ones the first."""
    return _winning(sources)


@query(
    truth="""
        SELECT auction, bidder, price, channel, url, bid.dateTime AS bid_dateTime, bid.extra AS bid_extra,
               itemName, description, initialBid, reserve, auction.dateTime AS dateTime, expires, seller, category,
               auction.extra AS extra
        FROM bid JOIN auction ON auction = auction.id
        WHERE category = 10
    """
)
def q20(sources: Sources) -> KStream:
    """Expand bids with their auctions, of one category."""
    bids = sources.bids().withColumnRenamed("dateTime", "bid_dateTime").withColumnRenamed("extra", "bid_extra")
    auctions = sources.auctions().where("category = 10").withColumnRenamed("id", "auction")
    return bids.withWatermark("bid_dateTime", LATE).join(
        auctions.withWatermark("dateTime", LATE), "auction", within=EVER
    )


@query(
    truth="""
        SELECT bidder, auction.id AS auction, price, channel, url, bid.extra AS bid_extra, name, emailAddress,
               creditCard, city, state, person.extra AS person_extra, itemName, description, initialBid, reserve,
               auction.dateTime AS auction_dateTime, expires, category, auction.extra AS auction_extra
        FROM bid JOIN person ON person.id = bidder JOIN auction ON seller = bidder
    """
)
def q23(sources: Sources) -> KStream:
    """Expand bids with who bids, and with each auction that the bidder opens: a join of three streams."""
    bids = sources.bids().drop("auction").withColumnRenamed("extra", "bid_extra").withWatermark("dateTime", LATE)
    people = sources.people().selectExpr(
        *("id AS bidder", "name", "emailAddress", "creditCard", "city", "state", "extra AS person_extra"),
        "dateTime AS registered",
    )
    auctions = sources.auctions().selectExpr(
        *("id AS auction", "seller AS bidder", "itemName", "description", "initialBid", "reserve"),
        *("dateTime AS auction_dateTime", "expires", "category", "extra AS auction_extra"),
    )
    known = bids.join(people.withWatermark("registered", LATE), "bidder", within=EVER)
    both = known.withWatermark("dateTime", LATE).join(
        auctions.withWatermark("auction_dateTime", LATE), "bidder", within=EVER
    )
    return both.drop("dateTime", "registered")
