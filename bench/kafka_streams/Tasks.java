import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.LagInfo;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * What the instance reports of its tasks, for the bench of availability: see bench/instance.py and bench/member.py.
 *
 * A task is named by its partition: the topology has one sub-topology, with one store.
 */
final class Tasks implements StateRestoreListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Lags are asked of the broker. */
    private static final double LAGS_EVERY_S = 0.25;

    private final KafkaStreams streams;
    /** Partitions that restore, with how many records they have so far. */
    private final Map<Integer, Long> restoring = new ConcurrentHashMap<>();
    private final Map<Integer, Long> lags = new TreeMap<>();
    private ObjectNode reported = JSON.createObjectNode();
    private double lagsAt;
    private double began;
    private long restored;
    private ObjectNode ended;

    Tasks(KafkaStreams streams) {
        this.streams = streams;
        streams.setGlobalStateRestoreListener(this);
    }

    /** Return what is to report now. */
    List<ObjectNode> look() {
        List<ObjectNode> reports = new ArrayList<>();
        synchronized (this) {
            if (ended != null) {
                reports.add(ended);
                ended = null;
            }
        }
        ObjectNode places = JSON.createObjectNode();
        ObjectNode place = places.putObject("");
        ArrayNode active = place.putArray("active");
        ObjectNode opening = place.putObject("restoring");
        ObjectNode standby = place.putObject("standby");
        for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
            for (TaskMetadata task : thread.activeTasks()) {
                int partition = task.taskId().partition();
                if (thread.threadState().equals("RUNNING") && !restoring.containsKey(partition)) {
                    active.add(partition);
                } else {
                    opening.putNull(String.valueOf(partition));
                }
            }
            if (!thread.standbyTasks().isEmpty()) {
                lookAtLags();
            }
            for (TaskMetadata task : thread.standbyTasks()) {
                int partition = task.taskId().partition();
                standby.put(String.valueOf(partition), lags.get(partition));
            }
        }
        if (!places.equals(reported)) {
            reported = places;
            reports.add(JSON.createObjectNode().put("event", "tasks").put("at", now()).set("places", places));
        }
        return reports;
    }

    private void lookAtLags() {
        if (now() - lagsAt < LAGS_EVERY_S) {
            return;
        }
        try {
            lags.clear();
            for (Map<Integer, LagInfo> store : streams.allLocalStorePartitionLags().values()) {
                store.forEach((partition, lag) -> lags.put(partition, lag.offsetLag()));
            }
        } catch (RuntimeException error) {
            // A rebalance is under way, or the broker does not answer: they are not known.
            lags.clear();
        }
        lagsAt = now();
    }

    @Override
    public synchronized void onRestoreStart(TopicPartition changelog, String store, long from, long to) {
        if (restoring.isEmpty()) {
            began = now();
            restored = 0;
        }
        restoring.put(changelog.partition(), 0L);
    }

    @Override
    public void onBatchRestored(TopicPartition changelog, String store, long offset, long count) {
        // Only the whole counts.
    }

    @Override
    public synchronized void onRestoreEnd(TopicPartition changelog, String store, long total) {
        restored += total;
        end(changelog);
    }

    @Override
    public synchronized void onRestoreSuspended(TopicPartition changelog, String store, long total) {
        end(changelog);
    }

    private void end(TopicPartition changelog) {
        restoring.remove(changelog.partition());
        if (restoring.isEmpty() && restored > 0) {
            ended = JSON.createObjectNode().put("event", "restored");
            ended.put("began", began).put("ended", now()).put("count", restored);
        }
    }

    private static double now() {
        return System.currentTimeMillis() / 1000.0;
    }
}
