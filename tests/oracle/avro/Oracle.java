import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/** Writes rows, given as Avro's JSON, in binary; and what a reader's schema makes of them, in binary by that one. */
public class Oracle {
    public static void main(String[] args) throws Exception {
        var mapper = new ObjectMapper();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode given = (ObjectNode) mapper.readTree(line);
            Schema writer = new Schema.Parser().parse(given.get("writer").toString());
            Schema reader = given.has("reader") ? new Schema.Parser().parse(given.get("reader").toString()) : writer;
            ArrayNode written = given.putArray("written"), read = given.putArray("read");
            for (JsonNode row : given.get("rows")) {
                var json = DecoderFactory.get().jsonDecoder(writer, row.toString());
                byte[] data = bytes(writer, new GenericDatumReader<Object>(writer).read(null, json));
                written.add(HexFormat.of().formatHex(data));
                try {
                    var binary = DecoderFactory.get().binaryDecoder(data, null);
                    Object resolved = new GenericDatumReader<Object>(writer, reader).read(null, binary);
                    read.add(HexFormat.of().formatHex(bytes(reader, resolved)));
                } catch (RuntimeException error) {
                    read.add((String) null);
                }
            }
            System.out.println(mapper.writeValueAsString(given));
        }
    }

    private static byte[] bytes(Schema schema, Object datum) throws Exception {
        var out = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<Object>(schema).write(datum, encoder);
        encoder.flush();
        return out.toByteArray();
    }
}
