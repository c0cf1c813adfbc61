import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * What Kafka Streams answers: a line of JSON in, one out, as specs.py says.
 *
 * The topology, its stores and what comes out when are Kafka Streams' own; so is its driver. Expressions and aggregates
 * are written here to mean what SQL means by them: they are not what is asked about.
 */
public final class Oracle {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<JsonNode> JSON = Serdes.serdeFrom((topic, node) -> write(node), (topic, data) -> read(data));
    private static final Duration FOR_EVER = Duration.ofDays(3650);

    private final StreamsBuilder builder = new StreamsBuilder();
    private final Map<Integer, KStream<String, JsonNode>> streams = new HashMap<>();
    private final Map<Integer, KTable<String, JsonNode>> tables = new HashMap<>();
    private final Map<Integer, GlobalKTable<String, JsonNode>> globalTables = new HashMap<>();
    /** Table to the field that has its key. */
    private final Map<Integer, String> keyOf = new HashMap<>();
    /** Store to the node that keeps it. */
    private final Map<String, JsonNode> stores = new LinkedHashMap<>();
    private final Set<String> sources = new HashSet<>();
    /** Of the input: a table with a history is asked for one key at a time. */
    private final Set<String> keys = new TreeSet<>();
    private final Map<String, TestOutputTopic<String, JsonNode>> outputs = new LinkedHashMap<>();

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(MAPPER.writeValueAsString(new Oracle().answer(MAPPER.readTree(line))));
            System.out.flush();
        }
    }

    private ObjectNode answer(JsonNode asked) throws IOException {
        asked.get("spec").forEach(this::add);
        Properties settings = new Properties();
        settings.put("application.id", "oracle");
        settings.put("bootstrap.servers", "nobody:9092");
        settings.put("statestore.cache.max.bytes", "0");
        // Else final results wait for the wall clock.
        settings.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        settings.put("state.dir", Files.createTempDirectory("oracle").toString());
        ObjectNode answer = MAPPER.createObjectNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings, Instant.EPOCH)) {
            for (JsonNode node : asked.get("spec")) {
                if (node.get("op").asText().equals("to")) {
                    String topic = node.get("topic").asText();
                    outputs.put(topic, driver.createOutputTopic(topic, TEXT.deserializer(), JSON.deserializer()));
                }
            }
            Map<String, TestInputTopic<String, JsonNode>> inputs = new HashMap<>();
            ArrayNode after = answer.putArray("outputs");
            ArrayNode states = MAPPER.createArrayNode();
            for (JsonNode record : asked.get("input")) {
                if (text(record.get("key")) != null) {
                    keys.add(text(record.get("key")));
                }
                if (sources.contains(record.get("topic").asText())) {
                    inputs.computeIfAbsent(
                            record.get("topic").asText(),
                            topic -> driver.createInputTopic(topic, TEXT.serializer(), JSON.serializer()))
                        .pipeInput(text(record.get("key")), nullable(record.get("value")), record.get("ts").asLong());
                }
                after.add(taken());
                if (asked.has("exact")) {
                    states.add(stored(driver));
                }
            }
            if (asked.has("exact")) {
                answer.set("states", states);
            }
            answer.set("stores", stored(driver));
        }
        return answer;
    }

    /** Returns the rows of each store. */
    private ObjectNode stored(TopologyTestDriver driver) {
        ObjectNode found = MAPPER.createObjectNode();
        stores.forEach((name, node) -> found.set(name, stored(driver, name, node)));
        return found;
    }

    /** Returns what was written since the last record, topic by topic: key, value, timestamp. */
    private ObjectNode taken() {
        ObjectNode written = MAPPER.createObjectNode();
        outputs.forEach((topic, output) -> {
            ArrayNode records = MAPPER.createArrayNode();
            for (TestRecord<String, JsonNode> record : output.readRecordsToList()) {
                records.addArray().add(record.key()).add(record.value()).add(record.timestamp());
            }
            if (!records.isEmpty()) {
                written.set(topic, records);
            }
        });
        return written;
    }

    /** Returns the rows of a store. */
    private ArrayNode stored(TopologyTestDriver driver, String name, JsonNode node) {
        ArrayNode rows = MAPPER.createArrayNode();
        if (node.has("history")) {
            VersionedKeyValueStore<String, JsonNode> versions = driver.getVersionedKeyValueStore(name);
            for (String key : keys) {
                VersionedRecord<JsonNode> newest = versions.get(key);
                if (newest != null) {
                    rows.add(((ObjectNode) newest.value().deepCopy()).put("key", key));
                }
            }
            return rows;
        }
        if (!node.has("by")) {
            KeyValueStore<String, JsonNode> newest = driver.getKeyValueStore(name);
            try (KeyValueIterator<String, JsonNode> all = newest.all()) {
                all.forEachRemaining(row -> rows.add(((ObjectNode) row.value.deepCopy())
                    .put(node.has("on") ? node.get("on").asText() : "key", row.key)));
            }
            return rows;
        }
        String by = node.get("by").asText();
        if (node.has("gap")) {
            SessionStore<String, JsonNode> store = driver.getSessionStore(name);
            try (KeyValueIterator<Windowed<String>, JsonNode> all = store.fetch(null, null)) {
                all.forEachRemaining(row -> rows.add(session(node, by, row.key, row.value)));
            }
            return rows;
        }
        if (node.has("window")) {
            WindowStore<String, JsonNode> store = driver.getWindowStore(name);
            try (KeyValueIterator<Windowed<String>, JsonNode> all = store.all()) {
                all.forEachRemaining(row -> rows.add(
                    row(node, by, row.key.key(), row.value).put("start", row.key.window().start())));
            }
            return rows;
        }
        KeyValueStore<String, JsonNode> store = driver.getKeyValueStore(name);
        try (KeyValueIterator<String, JsonNode> all = store.all()) {
            all.forEachRemaining(row -> rows.add(row(node, by, row.key, row.value)));
        }
        return rows;
    }

    private void add(JsonNode node) {
        String op = node.get("op").asText();
        KStream<String, JsonNode> of = node.has("of") ? streams.get(node.get("of").asInt()) : null;
        KStream<String, JsonNode> made = switch (op) {
            case "stream" -> {
                sources.add(node.get("topic").asText());
                yield builder.stream(node.get("topic").asText(), Consumed.with(TEXT, JSON));
            }
            case "table" -> {
                sources.add(node.get("topic").asText());
                yield kept(node, builder.table(node.get("topic").asText(), Consumed.with(TEXT, JSON), store(node)));
            }
            case "global_table" -> {
                sources.add(node.get("topic").asText());
                stores.put(node.get("store").asText(), node);
                globalTables.put(
                    node.get("id").asInt(),
                    builder.globalTable(node.get("topic").asText(), Consumed.with(TEXT, JSON), store(node)));
                yield null;
            }
            case "to_table" -> kept(node, of.mapValues(Oracle::asRow).toTable(store(node)));
            case "lookup" -> {
                GlobalKTable<String, JsonNode> everywhere = globalTables.get(node.get("table").asInt());
                if (everywhere != null) {
                    String on = node.get("on").asText();
                    KeyValueMapper<String, JsonNode, String> key =
                        (own, value) -> on.equals("key") ? own : value == null ? null : text(value.get(on));
                    yield node.get("how").asText().equals("left")
                        ? of.leftJoin(everywhere, key, Oracle::joined)
                        : of.join(everywhere, key, Oracle::joined);
                }
                KTable<String, JsonNode> table = tables.get(node.get("table").asInt());
                Joined<String, JsonNode, JsonNode> serdes = Joined.with(TEXT, JSON, JSON);
                if (node.has("grace")) {
                    serdes = serdes.withGracePeriod(Duration.ofMillis(node.get("grace").asLong()));
                }
                yield node.get("how").asText().equals("left")
                    ? of.leftJoin(table, Oracle::joined, serdes)
                    : of.join(table, Oracle::joined, serdes);
            }
            case "stream_join" -> {
                KStream<String, JsonNode> left = timed(of, "");
                KStream<String, JsonNode> right = timed(streams.get(node.get("with").asInt()), "r");
                JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(
                    Duration.ofMillis(node.get("within").asLong()), Duration.ofMillis(node.get("grace").asLong()));
                StreamJoined<String, JsonNode, JsonNode> serdes = StreamJoined.with(TEXT, JSON, JSON);
                yield switch (node.get("how").asText()) {
                    case "inner" -> left.join(right, Oracle::both, windows, serdes);
                    case "left" -> left.leftJoin(right, Oracle::both, windows, serdes);
                    case "outer" -> left.outerJoin(right, Oracle::both, windows, serdes);
                    default -> throw new IllegalArgumentException("unknown join " + node);
                };
            }
            case "table_join" -> {
                KTable<String, JsonNode> left = tables.get(node.get("of").asInt());
                String prefix = node.get("as").asText();
                KTable<String, JsonNode> right = tables.get(node.get("with").asInt());
                if (node.has("foreign")) {
                    right = right.mapValues(value -> prefixed(prefix, value), Materialized.with(TEXT, JSON));
                    tables.put(node.get("id").asInt(), joinedByForeignKey(node, left, right));
                    keyOf.put(node.get("id").asInt(), "key");
                    yield shown(tables.get(node.get("id").asInt()), "key");
                }
                // With a step in between, the right table would have no history any more.
                ValueJoiner<JsonNode, JsonNode, JsonNode> renamed = (row, other) -> both(row, prefixed(prefix, other));
                KTable<String, JsonNode> joined = switch (node.get("how").asText()) {
                    case "inner" -> left.join(right, renamed);
                    case "left" -> left.leftJoin(right, renamed);
                    case "outer" -> left.outerJoin(right, renamed);
                    default -> throw new IllegalArgumentException("unknown join " + node);
                };
                tables.put(node.get("id").asInt(), joined);
                keyOf.put(node.get("id").asInt(), "key");
                yield shown(joined, "key");
            }
            case "regroup" -> regrouped(node, tables.get(node.get("of").asInt()));
            case "having" -> {
                KTable<String, JsonNode> kept = tables.get(node.get("of").asInt())
                    .filter((key, value) -> passes(node, value));
                tables.put(node.get("id").asInt(), kept);
                keyOf.put(node.get("id").asInt(), keyOf.get(node.get("of").asInt()));
                yield shown(kept, keyOf.get(node.get("of").asInt()));
            }
            case "filter" -> of.filter((key, value) -> passes(node, value));
            case "merge" -> of.merge(streams.get(node.get("with").asInt()));
            case "map" -> of.mapValues(value -> mapped(node, value));
            case "aggregate" -> aggregated(node, of);
            case "to" -> {
                of.to(node.get("topic").asText(), Produced.with(TEXT, JSON));
                yield of;
            }
            default -> throw new IllegalArgumentException("unknown op " + op);
        };
        streams.put(node.get("id").asInt(), made);
    }

    private static Materialized<String, JsonNode, KeyValueStore<Bytes, byte[]>> store(JsonNode node) {
        String name = node.get("store").asText();
        Materialized<String, JsonNode, KeyValueStore<Bytes, byte[]>> kept = node.has("history")
            ? Materialized.as(
                Stores.persistentVersionedKeyValueStore(name, Duration.ofMillis(node.get("history").asLong())))
            : Materialized.as(name);
        return kept.withKeySerde(TEXT).withValueSerde(JSON);
    }

    /** Notes a table; what goes on is its stream, with the key among the fields. */
    private KStream<String, JsonNode> kept(JsonNode node, KTable<String, JsonNode> table) {
        tables.put(node.get("id").asInt(), table);
        keyOf.put(node.get("id").asInt(), "key");
        stores.put(node.get("store").asText(), node);
        return shown(table, "key");
    }

    /** Returns a table's changes, with the key among the fields. */
    private static KStream<String, JsonNode> shown(KTable<String, JsonNode> table, String by) {
        return table.toStream().mapValues(
            (key, value) -> value == null ? null : ((ObjectNode) value.deepCopy()).put(by, key));
    }

    private static JsonNode asRow(JsonNode value) {
        if (value == null) {
            return null;
        }
        ObjectNode row = MAPPER.createObjectNode();
        row.set("p", value.get("a"));
        row.set("q", value.get("s"));
        return row;
    }

    /** Puts the record's time among the fields, as "at", and something in front of their names. */
    private static KStream<String, JsonNode> timed(KStream<String, JsonNode> stream, String prefix) {
        return stream.processValues(() -> new ContextualFixedKeyProcessor<String, JsonNode, JsonNode>() {
            @Override
            public void process(FixedKeyRecord<String, JsonNode> record) {
                ObjectNode row = null;
                if (record.value() != null) {
                    row = MAPPER.createObjectNode().put(prefix + "at", record.timestamp());
                    for (Map.Entry<String, JsonNode> field : record.value().properties()) {
                        row.set(prefix + field.getKey(), field.getValue());
                    }
                }
                context().forward(record.withValue(row));
            }
        });
    }

    /** Puts something in front of the names of all fields. */
    private static JsonNode prefixed(String prefix, JsonNode value) {
        if (value == null) {
            return null;
        }
        ObjectNode row = MAPPER.createObjectNode();
        value.properties().forEach(field -> row.set(prefix + field.getKey(), field.getValue()));
        return row;
    }

    private KTable<String, JsonNode> joinedByForeignKey(
        JsonNode node, KTable<String, JsonNode> left, KTable<String, JsonNode> right
    ) {
        String field = node.get("foreign").asText();
        Materialized<String, JsonNode, KeyValueStore<Bytes, byte[]>> kept = node.has("store")
            ? store(node) : Materialized.with(TEXT, JSON);
        if (node.has("store")) {
            stores.put(node.get("store").asText(), node);
        }
        return switch (node.get("how").asText()) {
            case "inner" -> left.join(right, value -> named(value.get(field)), Oracle::both, kept);
            case "left" -> left.leftJoin(right, value -> named(value.get(field)), Oracle::both, kept);
            default -> throw new IllegalArgumentException("unknown join " + node);
        };
    }

    /** The key that a text stands for. */
    private static String named(JsonNode text) {
        return text == null || text.isNull() ? null : String.valueOf("klm".charAt("xyz".indexOf(text.asText())));
    }

    private static JsonNode both(JsonNode left, JsonNode right) {
        ObjectNode row = MAPPER.createObjectNode();
        if (left != null) {
            row.setAll((ObjectNode) left);
        }
        if (right != null) {
            row.setAll((ObjectNode) right);
        }
        return row;
    }

    private static JsonNode joined(JsonNode value, JsonNode row) {
        ObjectNode both = value.deepCopy();
        if (row != null) {
            both.setAll((ObjectNode) row);
        }
        return both;
    }

    private KStream<String, JsonNode> aggregated(JsonNode node, KStream<String, JsonNode> of) {
        String by = node.get("by").asText();
        String store = node.get("store").asText();
        Grouped<String, JsonNode> serdes = Grouped.with(TEXT, JSON);
        // Kafka Streams passes over null values everywhere but in windows, where they reach the aggregator; ours does.
        KStream<String, JsonNode> rows = of.filter((key, value) -> value != null);
        KGroupedStream<String, JsonNode> grouped = by.equals("key")
            ? rows.groupByKey(serdes)
            : rows.groupBy((key, value) -> text(value.get(by)), serdes);
        Aggregator<String, JsonNode, JsonNode> add = (key, value, state) -> merged(node.get("aggs"), value, state);
        stores.put(store, node);
        EmitStrategy emit = node.has("final") && node.get("final").asBoolean()
            ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        if (node.has("gap")) {
            SessionWindows windows = SessionWindows.ofInactivityGapAndGrace(
                Duration.ofMillis(node.get("gap").asLong()), Duration.ofMillis(node.get("grace").asLong()));
            return grouped.windowedBy(windows).emitStrategy(emit).aggregate(
                MAPPER::createObjectNode, add, (key, left, right) -> together(node.get("aggs"), left, right),
                Materialized.<String, JsonNode, SessionStore<Bytes, byte[]>>as(store)
                    .withKeySerde(TEXT).withValueSerde(JSON).withRetention(FOR_EVER.plusDays(1))
            ).toStream().map((key, state) -> KeyValue.pair(key.key(), session(node, by, key, state)));
        }
        if (node.has("window")) {
            Duration grace = node.has("grace") ? Duration.ofMillis(node.get("grace").asLong()) : FOR_EVER;
            TimeWindows windows = TimeWindows.ofSizeAndGrace(Duration.ofMillis(node.get("window").asLong()), grace);
            KTable<Windowed<String>, JsonNode> table = grouped.windowedBy(windows).emitStrategy(emit).aggregate(
                MAPPER::createObjectNode, add,
                // With the retention that it has by itself, a window that time jumps over is never emitted.
                Materialized.<String, JsonNode, WindowStore<Bytes, byte[]>>as(store)
                    .withKeySerde(TEXT).withValueSerde(JSON).withRetention(FOR_EVER.plusDays(1)));
            return table.toStream().map((key, state) -> {
                ObjectNode row = row(node, by, key.key(), state);
                row.put("start", key.window().start());
                return KeyValue.pair(key.key(), row);
            });
        }
        KTable<String, JsonNode> table = grouped.aggregate(
            MAPPER::createObjectNode, add,
            Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as(store).withKeySerde(TEXT).withValueSerde(JSON));
        tables.put(node.get("id").asInt(), table.mapValues((key, state) -> row(node, by, key, state)));
        keyOf.put(node.get("id").asInt(), by);
        return shown(tables.get(node.get("id").asInt()), by);
    }

    /** Groups a table's rows; a group without any is deleted. A state has the number of its rows, and [sum, count]s. */
    private KStream<String, JsonNode> regrouped(JsonNode node, KTable<String, JsonNode> of) {
        String by = node.get("by").asText();
        KTable<String, JsonNode> table = of
            .groupBy((key, value) -> KeyValue.pair(text(value.get(by)), value), Grouped.with(TEXT, JSON))
            .aggregate(
                MAPPER::createObjectNode,
                (key, value, state) -> counted(node.get("aggs"), value, state, 1),
                (key, value, state) -> counted(node.get("aggs"), value, state, -1),
                store(node));
        stores.put(node.get("store").asText(), node);
        tables.put(node.get("id").asInt(), table.mapValues((key, state) -> row(node, by, key, state)));
        keyOf.put(node.get("id").asInt(), by);
        return shown(tables.get(node.get("id").asInt()), by);
    }

    /** Adds a row to a state, or takes one out; null if there is none left. */
    private static JsonNode counted(JsonNode aggregates, JsonNode value, JsonNode state, int sign) {
        ObjectNode next = state.deepCopy();
        long rows = (state.has("rows") ? state.get("rows").asLong() : 0) + sign;
        if (rows == 0) {
            return null;
        }
        next.put("rows", rows);
        int index = 0;
        for (JsonNode aggregate : aggregates) {
            String name = "n" + index++;
            Long argument = aggregate.size() > 1 ? number(value.get(aggregate.get(1).asText())) : Long.valueOf(1);
            if (argument == null) {
                continue;
            }
            JsonNode held = state.get(name);
            long sum = (held == null ? 0 : held.get(0).asLong()) + sign * argument;
            long count = (held == null ? 0 : held.get(1).asLong()) + sign;
            if (count == 0) {
                next.remove(name);
            } else {
                next.putArray(name).add(sum).add(count);
            }
        }
        return next;
    }

    /** Returns the row of a session; of one that is no more, only which it was. */
    private static ObjectNode session(JsonNode node, String by, Windowed<String> key, JsonNode state) {
        ObjectNode row = state == null
            ? MAPPER.createObjectNode().put(by, key.key()).put("gone", true) : row(node, by, key.key(), state);
        return row.put("start", key.window().start()).put("end", key.window().end());
    }

    private static ObjectNode row(JsonNode node, String by, String key, JsonNode state) {
        ObjectNode row = MAPPER.createObjectNode().put(by, key);
        int index = 0;
        for (JsonNode aggregate : node.get("aggs")) {
            String function = aggregate.get(0).asText();
            JsonNode held = state.get("n" + index);
            if (held != null && held.isArray() && !function.equals("avg")) {
                row.set("n" + index, held.get(function.equals("sum") ? 0 : 1));
            } else if (function.equals("avg") && held != null) {
                row.put("n" + index, held.get(0).asDouble() / held.get(1).asLong());
            } else if (held != null) {
                row.set("n" + index, held);
            } else if (function.equals("count")) {
                row.put("n" + index, 0);
            }
            index++;
        }
        return row;
    }

    private static JsonNode merged(JsonNode aggregates, JsonNode value, JsonNode state) {
        ObjectNode next = state.deepCopy();
        int index = 0;
        for (JsonNode aggregate : aggregates) {
            String name = "n" + index++;
            Long argument = aggregate.size() > 1 ? number(value.get(aggregate.get(1).asText())) : Long.valueOf(1);
            if (argument == null) {
                continue;
            }
            JsonNode held = next.get(name);
            switch (aggregate.get(0).asText()) {
                case "count" -> next.put(name, held == null ? 1 : held.asLong() + 1);
                case "sum" -> next.put(name, held == null ? argument : held.asLong() + argument);
                case "min" -> next.put(name, held == null ? argument : Math.min(held.asLong(), argument));
                case "max" -> next.put(name, held == null ? argument : Math.max(held.asLong(), argument));
                case "avg" -> next.putArray(name)
                    .add(held == null ? argument : held.get(0).asLong() + argument)
                    .add(held == null ? 1 : held.get(1).asLong() + 1);
                default -> throw new IllegalArgumentException("unknown aggregate " + aggregate);
            }
        }
        return next;
    }

    /** Returns what two states are together. */
    private static JsonNode together(JsonNode aggregates, JsonNode left, JsonNode right) {
        ObjectNode both = left.deepCopy();
        for (Map.Entry<String, JsonNode> held : right.properties()) {
            JsonNode mine = left.get(held.getKey());
            JsonNode other = held.getValue();
            if (mine == null) {
                both.set(held.getKey(), other);
                continue;
            }
            String function = aggregates.get(Integer.parseInt(held.getKey().substring(1))).get(0).asText();
            switch (function) {
                case "count", "sum" -> both.put(held.getKey(), mine.asLong() + other.asLong());
                case "min" -> both.put(held.getKey(), Math.min(mine.asLong(), other.asLong()));
                case "max" -> both.put(held.getKey(), Math.max(mine.asLong(), other.asLong()));
                case "avg" -> both.putArray(held.getKey())
                    .add(mine.get(0).asLong() + other.get(0).asLong())
                    .add(mine.get(1).asLong() + other.get(1).asLong());
                default -> throw new IllegalArgumentException("unknown aggregate " + function);
            }
        }
        return both;
    }

    /** As SQL: a comparison with null passes nothing. */
    private static boolean passes(JsonNode node, JsonNode value) {
        JsonNode field = value == null ? null : value.get(node.get("field").asText());
        if (field == null || field.isNull()) {
            return false;
        }
        // Averages are no whole numbers.
        double left = field.asDouble();
        long right = node.get("than").asLong();
        return switch (node.get("is").asText()) {
            case "<" -> left < right;
            case ">" -> left > right;
            case "=" -> left == right;
            case "<>" -> left != right;
            default -> throw new IllegalArgumentException("unknown comparison " + node);
        };
    }

    /** Sets a field to the sum, or product, of two others; as SQL, null if one of them is. */
    private static JsonNode mapped(JsonNode node, JsonNode value) {
        if (value == null) {
            return null;
        }
        Long left = number(value.get(node.get("left").asText()));
        Long right = number(value.get(node.get("right").asText()));
        ObjectNode changed = value.deepCopy();
        if (left == null || right == null) {
            changed.putNull(node.get("field").asText());
        } else {
            boolean sum = node.get("by").asText().equals("+");
            changed.put(node.get("field").asText(), sum ? left + right : left * right);
        }
        return changed;
    }

    private static Long number(JsonNode node) {
        return node == null || node.isNull() ? null : node.asLong();
    }

    private static String text(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText();
    }

    private static JsonNode nullable(JsonNode node) {
        return node == null || node.isNull() ? null : node;
    }

    private static byte[] write(JsonNode node) {
        try {
            return node == null ? null : MAPPER.writeValueAsBytes(node);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static JsonNode read(byte[] data) {
        try {
            return data == null ? null : MAPPER.readTree(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
