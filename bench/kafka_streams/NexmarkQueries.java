import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.ToLongFunction;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * Queries of Nexmark, written as users of Kafka Streams would: DSL, JSON by Jackson, RocksDB. What each must answer is
 * in bench/nexmark/queries.
 *
 * Tasks drain their partitions at their own pace, so behind a repartition topic records are out of order by as much as
 * tasks are apart, and a short grace period would drop them. There windows have a long one, and each change is written:
 * the last row of a key counts. Only the counts of q5, whose windows are in front of the repartition topic, are final.
 */
final class NexmarkQueries {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    private static final Duration TEN_SECONDS = Duration.ofSeconds(10);
    private static final Duration TWO_SECONDS = Duration.ofSeconds(2);
    /** How late events may come to final windows. */
    private static final Duration LATE = Duration.ofSeconds(10);
    /** How far apart rows of a join may be, and how late records may be behind a repartition topic. */
    private static final Duration EVER = Duration.ofDays(365);
    private static final Set<String> LOCAL_STATES = Set.of("OR", "ID", "CA");
    private static final long SIDE_INPUT = 10_000;
    private static final DateTimeFormatter TIME =
        DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSSXXX").withZone(ZoneOffset.UTC);

    /** What all events have. */
    interface Event {
        long dateTime();
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    record Person(long id, String name, String city, String state, long dateTime) implements Event {}

    @JsonIgnoreProperties(ignoreUnknown = true)
    record Auction(long id, long seller, long category, long dateTime, long expires) implements Event {}

    @JsonIgnoreProperties(ignoreUnknown = true)
    record Bid(long auction, long bidder, long price, long dateTime, String extra) implements Event {}

    /** q3: a row of the answer. */
    record LocalItem(String name, String city, String state, long id) {}

    /** q4: a bid that counts, with its auction's category; then the highest one of an auction. */
    record Price(long category, long price) {}

    /** q4: what prices of a category come to. */
    record Sum(long total, long count) {}

    /** q4: a row of the answer. */
    record CategoryAverage(long category, double average) {}

    /** q5: a row of the answer. */
    record HotItem(long auction, long num, String starts, String ends) {}

    /** q5: rows of one window with the same, largest count. */
    record HotItems(List<HotItem> rows) {}

    /** q7: a row of the answer. */
    record HighestBid(long auction, long price, long bidder, String dateTime, String extra, String ends) {}

    /** q7: rows of one window with the same, highest price. */
    record HighestBids(List<HighestBid> rows) {}

    /** q8: a row of the answer. */
    record NewUser(long id, String name, String starts) {}

    /** q11, q12: a row of the answer. */
    record BidCount(long bidder, long bid_count, String starts, String ends) {}

    /** q13: a row of the answer. */
    record BidAndValue(long auction, long bidder, long price, String dateTime, String value) {}

    private final StreamsBuilder builder = new StreamsBuilder();
    private final JsonNode orders;
    private final Runnable count;
    private final Runnable between;

    private NexmarkQueries(JsonNode orders, Runnable count, Runnable between) {
        this.orders = orders;
        this.count = count;
        this.between = between;
    }

    /**
     * Return the query that the orders want; {@code count} is run for each record of the sources, {@code between} for
     * each one that has passed a topic between.
     */
    static Topology topology(JsonNode orders, Runnable count, Runnable between) {
        NexmarkQueries queries = new NexmarkQueries(orders, count, between);
        String query = orders.get("nexmark").asText();
        switch (query) {
            case "q3" -> queries.localItems();
            case "q4" -> queries.averagePriceOfCategories();
            case "q5" -> queries.hotItems();
            case "q7" -> queries.highestBids();
            case "q8" -> queries.newUsers();
            case "q11" -> queries.sessions();
            case "q12" -> queries.bidsByArrival();
            case "q13" -> queries.lookUp();
            default -> throw new IllegalArgumentException("unknown query " + query);
        }
        return queries.builder.build();
    }

    /** q3: who sells in certain states, with the auctions of one category that they open. */
    private void localItems() {
        KStream<Long, Auction> sales = auctions()
            .filter((id, auction) -> auction.category() == 10)
            .selectKey((id, auction) -> auction.seller());
        KStream<Long, Person> people = people().filter((id, person) -> LOCAL_STATES.contains(person.state()));
        repartitioned(sales, LONG, Queries.json(Auction.class))
            .join(
                people,
                (auction, person) -> new LocalItem(person.name(), person.city(), person.state(), auction.id()),
                JoinWindows.ofTimeDifferenceAndGrace(EVER, LATE),
                StreamJoined.with(LONG, Queries.json(Auction.class), Queries.json(Person.class)))
            .to(sink(), Produced.with(LONG, Queries.json(LocalItem.class)));
    }

    /** q4: the average of the highest bids of a category's auctions. */
    private void averagePriceOfCategories() {
        KTable<Long, Price> highest = auctions()
            .join(
                bids(),
                (auction, bid) -> inTime(auction, bid) ? new Price(auction.category(), bid.price()) : null,
                JoinWindows.ofTimeDifferenceAndGrace(EVER, LATE).before(Duration.ZERO),
                StreamJoined.with(LONG, Queries.json(Auction.class), Queries.json(Bid.class)))
            .filter((id, price) -> price != null)
            .groupByKey(Grouped.with(LONG, Queries.json(Price.class)))
            .reduce((one, other) -> other.price() > one.price() ? other : one);
        highest
            .groupBy(
                (id, price) -> KeyValue.pair(price.category(), price.price()), Grouped.with(LONG, LONG))
            .aggregate(
                () -> new Sum(0, 0),
                (category, price, sum) -> {
                    between.run();
                    return new Sum(sum.total() + price, sum.count() + 1);
                },
                (category, price, sum) -> new Sum(sum.total() - price, sum.count() - 1),
                Materialized.with(LONG, Queries.json(Sum.class)))
            .toStream()
            .mapValues((category, sum) -> new CategoryAverage(category, (double) sum.total() / sum.count()))
            .to(sink(), Produced.with(LONG, Queries.json(CategoryAverage.class)));
    }

    private static boolean inTime(Auction auction, Bid bid) {
        return auction.dateTime() <= bid.dateTime() && bid.dateTime() <= auction.expires();
    }

    /** q5: every two seconds, the auctions with the most bids of the last ten seconds. */
    private void hotItems() {
        KStream<Long, HotItem> counts = bids()
            .groupByKey(Grouped.with(LONG, Queries.json(Bid.class)))
            .windowedBy(TimeWindows.ofSizeAndGrace(TEN_SECONDS, LATE).advanceBy(TWO_SECONDS))
            .count(Materialized.with(LONG, LONG))
            .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
            .toStream()
            .map((window, num) -> KeyValue.pair(
                window.window().end(), new HotItem(window.key(), num, starts(window), ends(window))));
        repartitioned(counts, LONG, Queries.json(HotItem.class))
            .groupByKey(Grouped.with(LONG, Queries.json(HotItem.class)))
            .aggregate(
                () -> new HotItems(List.of()),
                (ends, item, hot) -> new HotItems(largest(hot.rows(), item, HotItem::num)),
                Materialized.with(LONG, Queries.json(HotItems.class)))
            .toStream()
            .to(sink(), Produced.with(LONG, Queries.json(HotItems.class)));
    }

    /** q7: of every ten seconds, the bids with the highest price. */
    private void highestBids() {
        long size = TEN_SECONDS.toMillis();
        KStream<Long, HighestBid> timed = bids().map((auction, bid) -> {
            long ends = bid.dateTime() / size * size + size;
            return KeyValue.pair(ends, new HighestBid(
                bid.auction(), bid.price(), bid.bidder(), time(bid.dateTime()), bid.extra(), time(ends)));
        });
        repartitioned(timed, LONG, Queries.json(HighestBid.class))
            .groupByKey(Grouped.with(LONG, Queries.json(HighestBid.class)))
            .aggregate(
                () -> new HighestBids(List.of()),
                (ends, bid, highest) -> new HighestBids(largest(highest.rows(), bid, HighestBid::price)),
                Materialized.with(LONG, Queries.json(HighestBids.class)))
            .toStream()
            .to(sink(), Produced.with(LONG, Queries.json(HighestBids.class)));
    }

    /** Return the rows with the largest number among some that have the same one, and one more row. */
    private static <R> List<R> largest(List<R> rows, R row, ToLongFunction<R> numberOf) {
        long number = numberOf.applyAsLong(row);
        if (rows.isEmpty() || number > numberOf.applyAsLong(rows.get(0))) {
            return List.of(row);
        }
        if (number < numberOf.applyAsLong(rows.get(0))) {
            return rows;
        }
        List<R> more = new ArrayList<>(rows);
        more.add(row);
        return more;
    }

    /** q8: people who registered and opened an auction in the same ten seconds. */
    private void newUsers() {
        TimeWindows tens = TimeWindows.ofSizeAndGrace(TEN_SECONDS, EVER);
        KTable<Windowed<Long>, String> registered = people()
            .mapValues(Person::name)
            .groupByKey(Grouped.with(LONG, TEXT))
            .windowedBy(tens)
            .reduce((one, other) -> other);
        KStream<Long, String> sellers = auctions().map((id, auction) -> KeyValue.pair(auction.seller(), ""));
        KTable<Windowed<Long>, Long> opened = repartitioned(sellers, LONG, TEXT)
            .groupByKey(Grouped.with(LONG, TEXT))
            .windowedBy(tens)
            .count(Materialized.with(LONG, LONG));
        registered
            .join(opened, (name, auctions) -> name)
            .toStream()
            .map((window, name) -> KeyValue.pair(window.key(), new NewUser(window.key(), name, starts(window))))
            .to(sink(), Produced.with(LONG, Queries.json(NewUser.class)));
    }

    /** q11: how many bids each person made without a pause of ten seconds. */
    private void sessions() {
        bidders()
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(TEN_SECONDS, EVER))
            .count(Materialized.with(LONG, LONG))
            .toStream()
            // A session that becomes part of a longer one is deleted. Spark's end with the pause.
            .map((window, bids) -> KeyValue.pair(
                key(window),
                bids == null ? null : new BidCount(
                    window.key(), bids, starts(window), time(window.window().end() + TEN_SECONDS.toMillis()))))
            .to(sink(), Produced.with(TEXT, Queries.json(BidCount.class)));
    }

    /** q12: how many bids of each person arrived in every ten seconds. */
    private void bidsByArrival() {
        bidders()
            .windowedBy(TimeWindows.ofSizeAndGrace(TEN_SECONDS, EVER))
            .count(Materialized.with(LONG, LONG))
            .toStream()
            .map((window, bids) -> KeyValue.pair(
                key(window), new BidCount(window.key(), bids, starts(window), ends(window))))
            .to(sink(), Produced.with(TEXT, Queries.json(BidCount.class)));
    }

    private KGroupedStream<Long, String> bidders() {
        KStream<Long, String> bidders = bids().map((auction, bid) -> KeyValue.pair(bid.bidder(), ""));
        return repartitioned(bidders, LONG, TEXT).groupByKey(Grouped.with(LONG, TEXT));
    }

    /** q13: each bid with what a bounded side input has for its auction. */
    private void lookUp() {
        Map<Long, String> side = new HashMap<>();
        for (long id = 0; id < SIDE_INPUT; id++) {
            side.put(id, "value of " + id);
        }
        bids()
            .mapValues(bid -> {
                String value = side.get(bid.auction() % SIDE_INPUT);
                return value == null ? null : new BidAndValue(
                    bid.auction(), bid.bidder(), bid.price(), time(bid.dateTime()), value);
            })
            .filter((auction, row) -> row != null)
            .to(sink(), Produced.with(LONG, Queries.json(BidAndValue.class)));
    }

    private KStream<Long, Person> people() {
        return events("person", Person.class);
    }

    private KStream<Long, Auction> auctions() {
        return events("auction", Auction.class);
    }

    private KStream<Long, Bid> bids() {
        return events("bid", Bid.class);
    }

    private <E extends Event> KStream<Long, E> events(String type, Class<E> rows) {
        Consumed<Long, E> consumed = Consumed.with(LONG, Queries.json(rows));
        if (!orders.get("nexmark").asText().equals("q12")) {
            // Of q12 the record's own timestamp counts: when it arrived.
            consumed = consumed.withTimestampExtractor((record, before) -> ((Event) record.value()).dateTime());
        }
        return builder.stream(orders.get("sources").get(type).asText(), consumed).peek((id, event) -> count.run());
    }

    private <K, V> KStream<K, V> repartitioned(KStream<K, V> stream, Serde<K> keys, Serde<V> values) {
        return stream.repartition(Repartitioned.with(keys, values)).peek((key, value) -> between.run());
    }

    private String sink() {
        return orders.get("sink").asText();
    }

    private static String key(Windowed<Long> window) {
        return window.key() + "@" + window.window().start() + "-" + window.window().end();
    }

    private static String starts(Windowed<Long> window) {
        return time(window.window().start());
    }

    private static String ends(Windowed<Long> window) {
        return time(window.window().end());
    }

    private static String time(long millis) {
        return TIME.format(Instant.ofEpochMilli(millis));
    }
}
