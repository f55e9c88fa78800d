import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.core.filter.Filter;
import org.apache.activemq.artemis.core.filter.impl.FilterImpl;
import org.apache.activemq.artemis.core.message.impl.CoreMessage;
import org.apache.activemq.artemis.protocol.amqp.broker.AMQPStandardMessage;

/**
 * Asks Artemis's own filters about messages.
 *
 * Input: a line per question: filter TAB "amqp" or "core" TAB message, all but the kind as
 * hexadecimal. A message is the encoded one (AMQP), or a line per property: name, type and value
 * with a NUL between (Core). Output: "1" it matches, "0" it does not, "invalid" it is no filter.
 */
public final class SelectorOracle {
  public static void main(String[] arguments) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] parts = line.split("\t", -1);
      Filter filter;
      try {
        filter = FilterImpl.createFilter(text(parts[0]));
      } catch (Exception invalid) {
        System.out.println("invalid");
        continue;
      }
      Message message =
          parts[1].equals("amqp")
              ? new AMQPStandardMessage(0, HexFormat.of().parseHex(parts[2]), null)
              : core(text(parts[2]));
      System.out.println(filter.match(message) ? "1" : "0");
    }
  }

  private static String text(String hex) {
    return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
  }

  private static Message core(String lines) {
    CoreMessage message = new CoreMessage(1, 512);
    message.setAddress("orders");
    message.setPriority((byte) 7);
    message.setTimestamp(5000);
    message.setDurable(true);
    for (String line : lines.isEmpty() ? new String[0] : lines.split("\n", -1)) {
      String[] parts = line.split("\0", -1);
      SimpleString name = SimpleString.of(parts[0]);
      switch (parts[1]) {
        case "string" -> message.putStringProperty(name, SimpleString.of(parts[2]));
        case "boolean" -> message.putBooleanProperty(name, Boolean.parseBoolean(parts[2]));
        case "byte" -> message.putByteProperty(name, Byte.parseByte(parts[2]));
        case "short" -> message.putShortProperty(name, Short.parseShort(parts[2]));
        case "int" -> message.putIntProperty(name, Integer.parseInt(parts[2]));
        case "long" -> message.putLongProperty(name, Long.parseLong(parts[2]));
        case "float" -> message.putFloatProperty(name, Float.parseFloat(parts[2]));
        case "double" -> message.putDoubleProperty(name, Double.parseDouble(parts[2]));
        default -> throw new IllegalArgumentException(parts[1]);
      }
    }
    return message;
  }
}
