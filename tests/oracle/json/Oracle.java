import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.datatype.jsr310.JavaTimeModule;

/** Writes objects as Java's serializers of JSON Schema do: by Jackson, behind a byte 0 and the schema's number. */
public class Oracle {
    private static final int NUMBER = 70_000;

    public record Item(String sku, long n) {}

    public record Order(long id, String note, double ratio, float small, BigDecimal amount, Boolean ok, List<Item> items,
            Map<String, Long> counts, Instant at, LocalDate day, byte[] raw, Object any) {}

    public static void main(String[] args) throws Exception {
        var mapper = new ObjectMapper().registerModule(new JavaTimeModule());
        mapper.disable(SerializationFeature.WRITE_DATES_AS_TIMESTAMPS);
        ObjectNode answer = (ObjectNode) mapper.readTree(System.in);
        ArrayNode written = answer.putArray("written");
        for (Order order : orders()) {
            byte[] value = mapper.writeValueAsBytes(order);
            byte[] record = ByteBuffer.allocate(5 + value.length).put((byte) 0).putInt(NUMBER).put(value).array();
            written.add(HexFormat.of().formatHex(record));
        }
        answer.put("number", NUMBER);
        System.out.println(mapper.writeValueAsString(answer));
    }

    private static List<Order> orders() {
        var counts = new LinkedHashMap<String, Long>();
        counts.put("", Long.MIN_VALUE);
        counts.put("k\"\\\u0000", null);
        var orders = new ArrayList<Order>();
        orders.add(new Order(0, null, 0, 0, null, null, null, null, null, null, null, null));
        orders.add(new Order(Long.MAX_VALUE, "\u00e4\u20ac\ud83d\ude00 \"\\/\b\f\n\r\t\u0001\u001f\u007f\u2028", 1e10, 1e10f,
                new BigDecimal("-1234567890.0123456789"), true, List.of(new Item("a", 1), new Item("", -1)), counts,
                Instant.parse("2026-01-01T00:00:00.123456789Z"), LocalDate.of(1969, 12, 31), new byte[] {0, -1, 127},
                Map.of("b", List.of(1, "x"))));
        orders.add(new Order(Long.MIN_VALUE, "", Double.MIN_VALUE, Float.MIN_VALUE, new BigDecimal("1E+3"), false,
                List.of(), Map.of(), Instant.EPOCH, LocalDate.of(9999, 12, 31), new byte[0], "text"));
        orders.add(new Order(-1, "NaN", Double.NaN, Float.POSITIVE_INFINITY, new BigDecimal("1E-9"), null, null, null,
                Instant.parse("0001-01-01T00:00:00Z"), LocalDate.of(1, 1, 1), null, new BigInteger("123456789012345678901")));
        orders.add(new Order(1, "\ud800 alone", -Double.MAX_VALUE, -Float.MAX_VALUE, BigDecimal.ZERO, true, null, null,
                Instant.parse("2026-01-01T00:00:00.1Z"), null, null, 1.5));
        return orders;
    }
}
