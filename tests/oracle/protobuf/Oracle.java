import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.orc.protobuf.DescriptorProtos.FileDescriptorSet;
import org.apache.orc.protobuf.Descriptors.Descriptor;
import org.apache.orc.protobuf.Descriptors.FileDescriptor;
import org.apache.orc.protobuf.DynamicMessage;
import org.apache.orc.protobuf.TextFormat;

/** Writes messages, given as Protobuf's text, in binary. */
public class Oracle {
    public static void main(String[] args) throws Exception {
        var mapper = new ObjectMapper();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode given = (ObjectNode) mapper.readTree(line);
            Descriptor message = descriptor(given.get("files").asText(), given.get("message").asText());
            ArrayNode written = given.putArray("written");
            for (JsonNode text : given.get("texts")) {
                var builder = DynamicMessage.newBuilder(message);
                TextFormat.merge(text.asText(), builder);
                written.add(HexFormat.of().formatHex(builder.build().toByteArray()));
            }
            System.out.println(mapper.writeValueAsString(given));
        }
    }

    private static Descriptor descriptor(String files, String name) throws Exception {
        var known = new ArrayList<FileDescriptor>();
        for (var file : FileDescriptorSet.parseFrom(Base64.getDecoder().decode(files)).getFileList()) {
            var imported = known.stream().filter(one -> file.getDependencyList().contains(one.getName()));
            known.add(FileDescriptor.buildFrom(file, imported.toArray(FileDescriptor[]::new)));
        }
        var last = known.get(known.size() - 1);
        return last.findMessageTypeByName(name.substring(last.getPackage().length() + 1));
    }
}
