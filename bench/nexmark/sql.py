"""The queries as SQL text over the views ``person``, ``auction`` and ``bid``, each a stream with a watermark.

Most are the benchmark's own text (``truth``). The others are the nearest text that ends a stream's state, and say why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - everybody writes `functions as F`

from bench.nexmark.query import LATE, Sources
from sparkrelay import Json, KTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from bench.nexmark.query import Query
    from sparkrelay import KStream, StreamsBuilder

__all__ = ["OWN", "OwnText", "write_sql"]

_WITHIN: Final = "SQL has no within=: a range of time is added, by which state ends"
_ANEW: Final = "behind DISTINCT and a join the watermark is said anew, WATERMARK ... DELAY OF"
_RANK: Final = "state of a join without a range of time has no end: rank() in windows, written once"


class Views:
    """The topics as views of a builder, whose times are timestamps; ``bid`` has ``arrived``, its record's timestamp.

    Args:
        builder: of the pipeline.
        spark: of the session.
        topics: what they are called, if not as the views.
        times: view -> the column that its watermark goes by, where it is not ``dateTime``.
    """

    def __init__(
        self,
        builder: StreamsBuilder,
        spark: SparkSession,
        topics: Mapping[str, str] | None = None,
        times: Mapping[str, str] | None = None,
    ) -> None:
        self._builder = builder
        self._sources = Sources(builder, spark, topics)
        self._times = times or {}
        self._made: set[str] = set()

    def sql(self, text: str) -> KStream | KTable:
        """Return what a query gives, over those of the views that it names."""
        makers = {"person": self._sources.people, "auction": self._sources.auctions, "bid": self._bids}
        for name, make in makers.items():
            if re.search(rf"(FROM|JOIN)\s+{name}\b", text) and name not in self._made:
                stream = make().drop("kafka").withWatermark(self._times.get(name, "dateTime"), LATE)
                stream.createOrReplaceTempView(name)
                self._made.add(name)
        answer: KStream | KTable = self._builder.sql(text)
        return answer

    def _bids(self) -> KStream:
        return self._sources.bids().withColumn("arrived", F.col("kafka.timestamp"))


@dataclass(frozen=True, slots=True)
class OwnText:
    """A query in words of its own, or over views with another watermark.

    Attributes:
        why: why it is not the benchmark's text; empty if it is.
        text: the query.
        pipeline: several queries with methods between, in place of a text.
        times: as of :class:`Views`.
    """

    why: str = ""
    text: str = ""
    pipeline: Callable[[Views], KStream | KTable] | None = None
    times: Mapping[str, str] = field(default_factory=dict)


def _apart(left: str, right: str) -> str:
    return f"{right} BETWEEN {left} - INTERVAL 365 DAYS AND {left} + INTERVAL 365 DAYS"


def _hot_items(views: Views) -> KStream | KTable:
    counts = views.sql(
        "SELECT auction, window.start AS starts, window.end AS ends, count(*) AS num "
        "FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')"
    )
    assert isinstance(counts, KTable)
    counts.to_stream().withWatermark("ends", "20 seconds").createOrReplaceTempView("counts")
    return views.sql("""
        SELECT auction, num, starts, ends
        FROM (SELECT *, rank() OVER (PARTITION BY ended ORDER BY num DESC) AS place
              FROM (SELECT *, window(ends, '2 seconds') AS ended FROM counts))
        WHERE place = 1
    """)


_IN_TIME: Final = """
    in_time AS (
        SELECT auction.*, auction, bidder, price, bid.dateTime AS bid_dateTime, bid.extra AS bid_extra
        FROM auction JOIN bid ON auction.id = bid.auction AND bid.dateTime BETWEEN auction.dateTime AND expires
                              AND bid.dateTime <= auction.dateTime + INTERVAL 365 DAYS
    )
"""
_WINNING: Final = f"""
    {_IN_TIME}, winning AS (
        SELECT * EXCEPT (place) FROM (
            SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_dateTime, bidder, bid_extra) AS place
            FROM in_time
        ) WHERE place = 1
    )
"""
#: Queries whose text is not the benchmark's, or whose views are others.
OWN: Final[dict[str, OwnText]] = {
    "q3": OwnText(
        _WITHIN,
        f"""
        SELECT name, city, state, auction.id AS id
        FROM auction JOIN person ON seller = person.id AND {_apart("auction.dateTime", "person.dateTime")}
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
        """,
    ),
    "q4": OwnText(
        _WITHIN,
        f"""
        WITH {_IN_TIME}
        SELECT category, avg(final) AS average
        FROM (SELECT id, category, max(price) AS final FROM in_time GROUP BY id, category) GROUP BY category
        """,
    ),
    "q5": OwnText(_RANK, pipeline=_hot_items),
    "q6": OwnText(
        _WITHIN,
        f"""
        WITH {_WINNING}, latest AS (
            SELECT *, row_number() OVER (PARTITION BY seller ORDER BY bid_dateTime DESC, id DESC) AS place FROM winning
        )
        SELECT seller, avg(price) AS average FROM latest WHERE place <= 10 GROUP BY seller
        """,
    ),
    "q7": OwnText(
        _RANK,
        """
        SELECT auction, price, bidder, dateTime, extra, tens.end AS ends
        FROM (SELECT *, rank() OVER (PARTITION BY tens ORDER BY price DESC) AS place
              FROM (SELECT *, window(dateTime, '10 seconds') AS tens FROM bid))
        WHERE place = 1
        """,
    ),
    "q8": OwnText(
        _ANEW,
        """
        SELECT id, name, starts
        FROM (SELECT DISTINCT id, name, window(dateTime, '10 seconds').start AS starts FROM person)
             WATERMARK starts DELAY OF INTERVAL 10 SECONDS
        JOIN (SELECT DISTINCT seller AS id, window(dateTime, '10 seconds').start AS starts FROM auction)
             WATERMARK starts DELAY OF INTERVAL 10 SECONDS
        USING (id, starts)
        """,
    ),
    "q9": OwnText(_WITHIN, f"WITH {_WINNING} SELECT * FROM winning"),
    "q12": OwnText(times={"bid": "arrived"}),
    "q20": OwnText(
        _WITHIN,
        f"""
        SELECT auction, bidder, price, channel, url, bid.dateTime AS bid_dateTime, bid.extra AS bid_extra,
               itemName, description, initialBid, reserve, auction.dateTime AS dateTime, expires, seller, category,
               auction.extra AS extra
        FROM bid JOIN auction ON auction = auction.id AND {_apart("bid.dateTime", "auction.dateTime")}
        WHERE category = 10
        """,
    ),
    "q23": OwnText(
        f"{_WITHIN}; {_ANEW}",
        f"""
        SELECT bidder, auction.id AS auction, price, channel, url, bid_extra, name, emailAddress, creditCard, city,
               state, person_extra, itemName, description, initialBid, reserve, auction.dateTime AS auction_dateTime,
               expires, category, auction.extra AS auction_extra
        FROM (SELECT bidder, price, channel, url, bid.extra AS bid_extra, name, emailAddress, creditCard, city,
                     state, person.extra AS person_extra, bid.dateTime AS at
              FROM bid JOIN person ON person.id = bidder AND {_apart("bid.dateTime", "person.dateTime")})
             WATERMARK at DELAY OF INTERVAL 10 SECONDS
        JOIN auction ON seller = bidder AND {_apart("at", "auction.dateTime")}
        """,
    ),
}


def write_sql(
    query: Query, builder: StreamsBuilder, spark: SparkSession, sink: str, topics: Mapping[str, str] | None = None
) -> type[KStream | KTable]:
    """Write a query down as SQL text; returns what the answer is. The arguments are those of ``Query.write``.

    Raises:
        TopologyException: it cannot be written.
    """
    own = OWN.get(query.name, OwnText())
    views = Views(builder, spark, topics, own.times)
    answer = views.sql(own.text or query.truth) if own.pipeline is None else own.pipeline(views)
    if query.final and isinstance(answer, KTable):
        answer = answer.outputMode("append")
    answer.to(sink, value=Json())
    return type(answer)
