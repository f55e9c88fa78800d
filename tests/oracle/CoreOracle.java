import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.HexFormat;
import org.apache.activemq.artemis.api.core.ActiveMQBuffer;
import org.apache.activemq.artemis.api.core.ActiveMQBuffers;
import org.apache.activemq.artemis.core.persistence.impl.nullpm.NullStorageManager;
import org.apache.activemq.artemis.core.protocol.ServerPacketDecoder;
import org.apache.activemq.artemis.core.protocol.ClientPacketDecoder;
import org.apache.activemq.artemis.core.protocol.core.CoreRemotingConnection;
import org.apache.activemq.artemis.core.protocol.core.Packet;
import org.apache.activemq.artemis.core.protocol.core.impl.PacketDecoder;

/**
 * Reads packets of Core by the broker's own classes and writes them again.
 *
 * Input: on each line "s" (as the broker reads it) or "c" (as its client does), the protocol's
 * version and, in hexadecimal, a packet. Output: the name of the broker's class,
 * and the packet as this class writes it; or "refused" and the reason.
 */
public final class CoreOracle {
  public static void main(String[] arguments) throws Exception {
    PacketDecoder server = new ServerPacketDecoder(new NullStorageManager());
    PacketDecoder client = new ClientPacketDecoder();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] parts = line.split(" ");
      PacketDecoder decoder = parts[0].equals("s") ? server : client;
      CoreRemotingConnection connection = connection(Integer.parseInt(parts[1]));
      try {
        byte[] bytes = HexFormat.of().parseHex(parts[2]);
        ActiveMQBuffer buffer = ActiveMQBuffers.wrappedBuffer(Unpooled.wrappedBuffer(bytes));
        buffer.readInt();
        Packet packet = decoder.decode(buffer, connection);
        System.out.println(packet.getClass().getSimpleName() + " " + again(packet, connection));
      } catch (Throwable cause) {
        System.out.println("refused " + cause.toString().replace('\n', ' '));
      }
    }
  }

  private static String again(Packet packet, CoreRemotingConnection connection) {
    ActiveMQBuffer written = packet.encode(connection);
    byte[] bytes = new byte[written.writerIndex()];
    written.getBytes(0, bytes);
    return HexFormat.of().formatHex(bytes);
  }

  private static CoreRemotingConnection connection(int version) {
    InvocationHandler handler =
        (proxy, method, values) -> {
          if (method.isDefault()) {
            return InvocationHandler.invokeDefault(proxy, method, values);
          }
          return switch (method.getName()) {
            case "getChannelVersion" -> version;
            case "createTransportBuffer" ->
                ActiveMQBuffers.dynamicBuffer((Integer) values[0]);
            case "hashCode" -> 1;
            case "toString" -> "connection";
            default -> throw new UnsupportedOperationException(method.getName());
          };
        };
    return (CoreRemotingConnection)
        Proxy.newProxyInstance(
            CoreOracle.class.getClassLoader(),
            new Class<?>[] {CoreRemotingConnection.class},
            handler);
  }
}
