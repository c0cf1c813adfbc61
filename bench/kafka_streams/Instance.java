import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * One instance of Java's Kafka Streams running one of the bench's queries. See bench/instance.py for the reports and
 * bench/systems.py for the settings.
 *
 * Its "batch" is what was processed since the last look: Kafka Streams has no micro-batches. So "millis" is empty, and
 * a record counts up to one commit interval before it is committed.
 */
public final class Instance {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** More often would cost the bench more than it tells. */
    private static final double LEAST_LOOK_S = 0.05;
    private static final double STILL_S = 2;
    private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(60);
    private static final PrintStream OUT = System.out;

    /** What this instance has processed: how many records, and when the first came, in milliseconds since 1970. */
    private final LongAdder processed = new LongAdder();
    private final AtomicLong first = new AtomicLong();
    /** How many records of topics between it has processed: they are work, and do not count. */
    private final LongAdder between = new LongAdder();

    private void count() {
        if (first.get() == 0) {
            first.compareAndSet(0, System.currentTimeMillis());
        }
        processed.increment();
    }

    /** Run until standard input ends; returns the exit code. */
    private int run(JsonNode orders) throws InterruptedException {
        Properties settings = new Properties();
        orders.get("config").properties().forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        Topology topology = orders.has("nexmark")
            ? NexmarkQueries.topology(orders, this::count, between::increment)
            : Queries.topology(orders, this::count);
        KafkaStreams streams = new KafkaStreams(topology, settings);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch ending = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            failure.compareAndSet(null, error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR) {
                ending.countDown();
            }
        });
        watchInput(ending);
        report("up", event("at", now()));
        Tasks tasks = orders.path("tasks").asBoolean() ? new Tasks(streams) : null;
        streams.start();
        look(streams, ending, orders.get("look_s").asDouble(), tasks, orders.path("still").asBoolean());
        CloseOptions close = CloseOptions.timeout(CLOSE_TIMEOUT);
        if (orders.path("leave_group").asBoolean()) {
            close.withGroupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP);
        }
        boolean closed = streams.close(close);
        if (failure.get() != null || !closed) {
            String text = failure.get() != null ? failure.get().toString() : "it did not close within " + CLOSE_TIMEOUT;
            report("failed", event("at", now()).put("text", text));
            return 1;
        }
        return 0;
    }

    /** Report progress until the end is near. */
    private void look(
            KafkaStreams streams, CountDownLatch ending, double lookSeconds, Tasks tasks, boolean sayStill)
            throws InterruptedException {
        long everyMillis = Math.round(Math.max(LEAST_LOOK_S, lookSeconds) * 1000);
        boolean live = false;
        long reported = 0;
        long reportedBetween = 0;
        double reportedAt = 0;
        double workedAt = 0;
        for (int number = 0; !ending.await(everyMillis, TimeUnit.MILLISECONDS); ) {
            if (!live && streams.state() == KafkaStreams.State.RUNNING) {
                live = true;
                report("live", event("at", now()));
            }
            if (tasks != null) {
                for (ObjectNode changed : tasks.look()) {
                    OUT.println(changed);
                }
                OUT.flush();
            }
            long count = processed.sum();
            long countBetween = between.sum();
            double ended = now();
            if (count > reported || countBetween > reportedBetween) {
                ObjectNode batch = event("began", reported == 0 ? first.get() / 1000.0 : reportedAt);
                batch.put("id", number++).put("rows", count - reported).put("ended", ended).putObject("millis");
                batch.put("read", count - reported + countBetween - reportedBetween);
                report("batch", batch);
                reported = count;
                reportedBetween = countBetween;
                workedAt = ended;
            } else if (sayStill && workedAt > 0 && ended - workedAt > STILL_S) {
                workedAt = 0;
                report("still", event("at", ended));
            }
            reportedAt = ended;
        }
    }

    /** Also when the bench itself is killed, standard input ends. */
    private static void watchInput(CountDownLatch ending) {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read(new byte[4096]) >= 0) {
                    // What it asks others, it asks about Spark.
                }
            } catch (IOException error) {
                error.printStackTrace();
            }
            ending.countDown();
        }, "bench-stdin");
        watcher.setDaemon(true);
        watcher.start();
    }

    private static ObjectNode event(String name, double value) {
        return JSON.createObjectNode().put(name, value);
    }

    private static void report(String event, ObjectNode what) {
        OUT.println(what.put("event", event));
        OUT.flush();
    }

    private static double now() {
        return System.currentTimeMillis() / 1000.0;
    }

    public static void main(String[] arguments) throws Exception {
        // What libraries print must not end up between reports.
        System.setOut(System.err);
        System.exit(new Instance().run(JSON.readTree(arguments[0])));
    }
}
