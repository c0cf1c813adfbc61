// Answers of Kafka's own assignors, for comparison; see README.md. Reads one group a line, writes one answer a line.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Answers {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode group = JSON.readTree(line);
            Cluster cluster = cluster(group);
            ObjectNode out = JSON.createObjectNode();
            out.set("range", once(new RangeAssignor(), cluster, members(group, null)));
            out.set("roundrobin", once(new RoundRobinAssignor(), cluster, members(group, null)));
            Map<String, Subscription> sticky = members(group, new StickyAssignor());
            out.set("sticky", once(new StickyAssignor(), cluster, sticky));
            out.set("cooperative-sticky", converged(cluster, members(group, null)));
            ObjectNode data = out.putObject("user_data");
            sticky.forEach((id, s) -> data.put(id, s.userData() == null ? "" : hex(s.userData())));
            System.out.println(out);
        }
    }

    static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.limit()];
        buffer.duplicate().rewind().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static Cluster cluster(JsonNode group) {
        Map<String, Node> nodes = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        group.get("topics").fields().forEachRemaining(topic -> {
            for (int p = 0; p < topic.getValue().asInt(); p++) {
                List<Node> replicas = new ArrayList<>();
                if (group.has("racks"))
                    for (JsonNode rack : group.get("racks").get(topic.getKey()).get(p))
                        replicas.add(nodes.computeIfAbsent(rack.asText(), r -> new Node(nodes.size(), "h", 1, r)));
                if (replicas.isEmpty())
                    replicas.add(nodes.computeIfAbsent("", r -> new Node(nodes.size(), "h", 1)));
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), p, all[0], all, all));
            }
        });
        return new Cluster("c", nodes.values(), partitions, Set.of(), Set.of());
    }

    static Map<String, Subscription> members(JsonNode group, ConsumerPartitionAssignor tells) {
        Map<String, Subscription> members = new TreeMap<>();
        group.get("members").fields().forEachRemaining(entry -> {
            JsonNode member = entry.getValue();
            List<String> topics = new ArrayList<>();
            member.get("topics").forEach(t -> topics.add(t.asText()));
            List<TopicPartition> owned = new ArrayList<>();
            if (member.has("owned"))
                member.get("owned").fields().forEachRemaining(
                    t -> t.getValue().forEach(p -> owned.add(new TopicPartition(t.getKey(), p.asInt()))));
            int generation = member.has("generation") ? member.get("generation").asInt() : -1;
            ByteBuffer data = null;
            if (tells != null && generation >= 0) {
                tells.onAssignment(new Assignment(owned),
                    new ConsumerGroupMetadata("g", generation, entry.getKey(), Optional.empty()));
                data = tells.subscriptionUserData(Set.copyOf(topics));
            }
            Subscription subscription = new Subscription(topics, data, tells == null ? owned : List.of(), generation,
                member.has("rack") ? Optional.of(member.get("rack").asText()) : Optional.empty());
            subscription.setGroupInstanceId(
                member.has("instance") ? Optional.of(member.get("instance").asText()) : Optional.empty());
            members.put(entry.getKey(), subscription);
        });
        return members;
    }

    static ObjectNode once(ConsumerPartitionAssignor assignor, Cluster cluster, Map<String, Subscription> members) {
        ObjectNode out = JSON.createObjectNode();
        new TreeMap<>(assignor.assign(cluster, new GroupSubscription(members)).groupAssignment()).forEach(
            (member, assignment) -> {
                Map<String, List<Integer>> topics = new TreeMap<>();
                assignment.partitions().forEach(
                    p -> topics.computeIfAbsent(p.topic(), t -> new ArrayList<>()).add(p.partition()));
                ObjectNode lists = out.putObject(member);
                topics.forEach((topic, numbers) -> {
                    ArrayNode list = lists.putArray(topic);
                    numbers.forEach(list::add);
                });
            });
        return out;
    }

    /** Rebalances as a cooperative group does until nothing moves. */
    static ObjectNode converged(Cluster cluster, Map<String, Subscription> members) {
        ObjectNode before = null;
        for (int round = 0; round < 20; round++) {
            ObjectNode now = once(new CooperativeStickyAssignor(), cluster, members);
            if (now.equals(before))
                return now;
            before = now;
            Map<String, Subscription> next = new TreeMap<>();
            for (Map.Entry<String, Subscription> entry : members.entrySet()) {
                Subscription s = entry.getValue();
                List<TopicPartition> owned = new ArrayList<>();
                now.get(entry.getKey()).fields().forEachRemaining(
                    t -> t.getValue().forEach(p -> owned.add(new TopicPartition(t.getKey(), p.asInt()))));
                next.put(entry.getKey(), new Subscription(s.topics(), null, owned, 100 + round, s.rackId()));
            }
            members = next;
        }
        return before;
    }
}
