import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.time.Duration;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/** The bench's queries, written as users of Kafka Streams would: DSL, JSON by Jackson, RocksDB. */
final class Queries {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();

    /** A record of the workload; {@code time}, in seconds since 1970, is there with windows and joins only. */
    record Order(String user, double amount, String action, long n, String note, long time) {}

    /** What is kept of a user and written to the sink. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Totals(String user, long orders, double total, String note) {}

    /** A row of the table. */
    record Profile(String name, String country, long points) {}

    /** A record with what the table holds of its user. */
    record OrderAndProfile(String user, double amount, long n, String country, long points) {}

    /** A record with an answer to its user. */
    record OrderAndAnswer(String user, double amount, long n, long answer) {}

    /** What is written of a window. */
    record WindowTotals(String user, long start, long orders, double total) {}

    private final StreamsBuilder builder = new StreamsBuilder();
    private final JsonNode orders;
    private final Runnable count;

    private Queries(JsonNode orders, Runnable count) {
        this.orders = orders;
        this.count = count;
    }

    /** Return the query that the orders want; {@code count} is run for each record of the source. */
    static Topology topology(JsonNode orders, Runnable count) {
        Queries queries = new Queries(orders, count);
        String query = orders.path("query").asText("totals");
        switch (query) {
            case "totals" -> queries.totals();
            case "lookup" -> queries.lookup();
            case "join" -> queries.join();
            case "windows" -> queries.windows();
            default -> throw new IllegalArgumentException("unknown query " + query);
        }
        return queries.builder.build();
    }

    /** Filter, count and sum by user (and keep the greatest note), write updates. */
    private void totals() {
        boolean note = orders.path("note").asBoolean();
        Materialized<String, Totals, KeyValueStore<Bytes, byte[]>> store = Materialized.as("totals");
        kept(records(Consumed.with(TEXT, json(Order.class))))
            .aggregate(
                Queries::nothing,
                (user, order, sum) -> new Totals(
                    user, sum.orders() + 1, sum.total() + order.amount(), note ? greater(sum.note(), order.note()) : null),
                store.withKeySerde(TEXT).withValueSerde(json(Totals.class)))
            .toStream()
            .to(sink(), Produced.with(TEXT, json(Totals.class)));
    }

    /** Look each record's user up in a table. */
    private void lookup() {
        Materialized<String, Profile, KeyValueStore<Bytes, byte[]>> store = Materialized.as("profiles");
        KTable<String, Profile> profiles = builder.table(
            orders.get("table").asText(), Consumed.with(TEXT, json(Profile.class)), store);
        records(Consumed.with(TEXT, json(Order.class)))
            .join(
                profiles,
                (order, profile) -> new OrderAndProfile(
                    order.user(), order.amount(), order.n(), profile.country(), profile.points()),
                Joined.with(TEXT, json(Order.class), json(Profile.class)))
            .to(sink(), Produced.with(TEXT, json(OrderAndProfile.class)));
    }

    /** Join each record with what was answered to its user at about the same time. */
    private void join() {
        Duration within = Duration.ofSeconds(orders.get("within_s").asLong());
        Duration grace = Duration.ofSeconds(orders.get("delay_s").asLong());
        KStream<String, Order> answers = builder.stream(orders.get("answers").asText(), timed())
            .peek((user, answer) -> count.run());
        records(timed())
            .join(
                answers,
                (order, answer) -> new OrderAndAnswer(order.user(), order.amount(), order.n(), answer.n()),
                JoinWindows.ofTimeDifferenceAndGrace(within, grace),
                StreamJoined.with(TEXT, json(Order.class), json(Order.class)))
            .to(sink(), Produced.with(TEXT, json(OrderAndAnswer.class)));
    }

    private static Consumed<String, Order> timed() {
        return Consumed.with(TEXT, json(Order.class))
            .withTimestampExtractor((record, before) -> ((Order) record.value()).time() * 1000);
    }

    /** Filter, count and sum by user and window, write updates or the final rows. */
    private void windows() {
        Duration size = Duration.ofSeconds(orders.get("window_s").asLong());
        Duration grace = Duration.ofSeconds(orders.get("delay_s").asLong());
        Materialized<String, Totals, WindowStore<Bytes, byte[]>> store = Materialized.as("windows");
        KTable<Windowed<String>, Totals> totals = kept(records(timed()))
            .windowedBy(TimeWindows.ofSizeAndGrace(size, grace))
            .aggregate(
                Queries::nothing,
                (user, order, sum) -> new Totals(user, sum.orders() + 1, sum.total() + order.amount(), null),
                store.withKeySerde(TEXT).withValueSerde(json(Totals.class)));
        if (orders.get("final").asBoolean()) {
            totals = totals.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()));
        }
        totals.toStream()
            .map((window, sum) -> KeyValue.pair(window.key(), new WindowTotals(
                window.key(), window.window().start(), sum.orders(), sum.total())))
            .to(sink(), Produced.with(TEXT, json(WindowTotals.class)));
    }

    private KStream<String, Order> records(Consumed<String, Order> consumed) {
        return builder.stream(orders.get("source").asText(), consumed).peek((user, order) -> count.run());
    }

    private static KGroupedStream<String, Order> kept(KStream<String, Order> records) {
        return records.filter((user, order) -> !"view".equals(order.action()))
            .groupByKey(Grouped.with(TEXT, json(Order.class)));
    }

    private String sink() {
        return orders.get("sink").asText();
    }

    private static Totals nothing() {
        return new Totals(null, 0, 0.0, null);
    }

    private static String greater(String one, String other) {
        return one == null || one.compareTo(other) < 0 ? other : one;
    }

    static <T> Serde<T> json(Class<T> type) {
        ObjectReader reader = JSON.readerFor(type);
        ObjectWriter writer = JSON.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return value == null ? null : writer.writeValueAsBytes(value);
                } catch (IOException error) {
                    throw new SerializationException(error);
                }
            },
            (topic, data) -> {
                try {
                    return data == null ? null : reader.readValue(data);
                } catch (IOException error) {
                    throw new SerializationException(error);
                }
            });
    }
}
