import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.activemq.artemis.api.core.Pair;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.FileDeploymentManager;
import org.apache.activemq.artemis.core.config.impl.FileConfiguration;
import org.apache.activemq.artemis.core.postoffice.PostOffice;
import org.apache.activemq.artemis.core.server.ActiveMQServer;
import org.apache.activemq.artemis.core.server.MessageReference;
import org.apache.activemq.artemis.core.server.impl.QueueImpl;
import org.apache.activemq.artemis.core.server.impl.QueueMessageMetrics;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;
import org.apache.activemq.artemis.core.settings.impl.HierarchicalObjectRepository;
import org.apache.activemq.artemis.utils.CompositeAddress;

/**
 * Asks Artemis's own parser, settings repository and queue.
 *
 * Input: on each line the path of a broker.xml, or of a broker.properties, which is read over the
 * broker.xml in its folder if there is any; beside it stands a file of the same name plus
 * ".cases" with "address TAB delivery count" on each line. Output: for each configuration either
 * "refused TAB reason", or one line per case: maximum TAB dead-letter address TAB redelivery delay
 * TAB action TAB its argument TAB a varied delay TAB auto-created queue. "~" is null, "=" precedes
 * a text.
 */
public final class ArtemisOracle {
  private static final long TIME_BASE = 0;

  private final HierarchicalObjectRepository<AddressSettings> repository;
  private final QueueImpl queue;
  private final Method delay;
  private final MessageReference reference;

  private int deliveryCount;
  private Long scheduledTime;
  private SimpleString lookedUp;
  private SimpleString created;
  private boolean acknowledged;

  public static void main(String[] arguments) throws Exception {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    // Artemis's log.
    System.setOut(System.err);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Path file = Path.of(line);
      ArtemisOracle oracle;
      try {
        oracle = new ArtemisOracle(parse(file));
      } catch (Exception refused) {
        out.print("refused\t" + String.valueOf(refused.getMessage()).replaceAll("\\s+", " ") + "\n");
        continue;
      }
      List<String> cases = Files.readAllLines(Path.of(line + ".cases"), StandardCharsets.UTF_8);
      for (String one : cases) {
        String[] parts = one.split("\t", -1);
        out.print(oracle.answer(parts[0], Integer.parseInt(parts[1])) + "\n");
      }
    }
    out.flush();
  }

  private static Configuration parse(Path file) throws Exception {
    FileConfiguration configuration = new FileConfiguration();
    boolean isProperties = file.toString().endsWith(".properties");
    Path xml = isProperties ? file.resolveSibling("broker.xml") : file;
    if (Files.exists(xml)) {
      // As the broker reads its own file: with its schema.
      FileDeploymentManager manager = new FileDeploymentManager(xml.toUri().toString());
      manager.addDeployable(configuration);
      manager.readConfiguration();
    }
    if (isProperties) {
      configuration.parseProperties(file.toString());
    }
    return configuration;
  }

  private ArtemisOracle(Configuration configuration) throws Exception {
    // As ActiveMQServerImpl builds it.
    repository =
        new HierarchicalObjectRepository<>(
            configuration.getWildcardConfiguration(),
            new HierarchicalObjectRepository.MatchModifier() {
              @Override
              public String modify(String input) {
                return CompositeAddress.extractAddressName(input);
              }
            },
            configuration.getLiteralMatchMarkers());
    repository.setDefault(new AddressSettings());
    for (Map.Entry<String, AddressSettings> entry : configuration.getAddressSettings().entrySet()) {
      repository.addMatch(entry.getKey(), entry.getValue(), true);
    }
    queue = (QueueImpl) unsafe().allocateInstance(QueueImpl.class);
    delay =
        QueueImpl.class.getDeclaredMethod(
            "calculateRedeliveryDelay", AddressSettings.class, int.class);
    delay.setAccessible(true);
    reference = proxy(MessageReference.class, this::onReference);
    set("server", proxy(ActiveMQServer.class, this::onServer));
    set("postOffice", proxy(PostOffice.class, this::onPostOffice));
    set("deliveringMetrics", new QueueMessageMetrics(queue, "delivering"));
  }

  private String answer(String address, int count) throws Exception {
    AddressSettings settings = repository.getMatch(address);
    AddressSettings calm = settings.mergeCopy(new AddressSettings());
    calm.setRedeliveryCollisionAvoidanceFactor(0.0);
    String queueAddress = CompositeAddress.extractAddressName(address);
    set("queueConfiguration", QueueConfiguration.of("q").setAddress(queueAddress).setDurable(false));
    set("cachedAddressSettings", calm);
    deliveryCount = count;
    scheduledTime = null;
    lookedUp = null;
    created = null;
    acknowledged = false;
    Pair<Boolean, Boolean> result = queue.checkRedelivery(reference, TIME_BASE, false);
    String action;
    String argument;
    if (result.getA()) {
      action = "redeliver";
      argument = String.valueOf(scheduledTime == null ? 0 : scheduledTime - TIME_BASE);
    } else if (!acknowledged) {
      throw new IllegalStateException("neither requeued nor acknowledged");
    } else if (lookedUp == null || lookedUp.isEmpty()) {
      action = "discard";
      argument = "";
    } else {
      action = "dead_letter";
      argument = lookedUp.toString();
    }
    return String.join(
        "\t",
        String.valueOf(settings.getMaxDeliveryAttempts()),
        text(settings.getDeadLetterAddress()),
        String.valueOf(settings.getRedeliveryDelay()),
        action,
        argument,
        String.valueOf(delay.invoke(queue, settings, count)),
        text(created));
  }

  private static String text(SimpleString value) {
    return value == null ? "~" : "=" + value;
  }

  private Object onReference(Object self, Method method, Object[] arguments) {
    switch (method.getName()) {
      case "getDeliveryCount":
        return deliveryCount;
      case "setScheduledDeliveryTime":
        scheduledTime = (Long) arguments[0];
        return null;
      case "acknowledge":
        acknowledged = true;
        return null;
      default:
        return nothing(method);
    }
  }

  private Object onServer(Object self, Method method, Object[] arguments) {
    if (method.getName().equals("getAddressSettingsRepository")) {
      return repository;
    }
    if (method.getName().equals("createQueue")) {
      created = ((QueueConfiguration) arguments[0]).getName();
    }
    return nothing(method);
  }

  private Object onPostOffice(Object self, Method method, Object[] arguments) {
    if (method.getName().equals("lookupBindingsForAddress")) {
      lookedUp = (SimpleString) arguments[0];
    }
    return nothing(method);
  }

  private static Object nothing(Method method) {
    Class<?> type = method.getReturnType();
    if (type == boolean.class) {
      return false;
    }
    if (type == int.class) {
      return 0;
    }
    return type == long.class ? (Object) 0L : null;
  }

  @SuppressWarnings("unchecked")
  private static <T> T proxy(Class<T> type, InvocationHandler handler) {
    return (T) Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler);
  }

  private void set(String name, Object value) throws Exception {
    unsafe().putObject(queue, unsafe().objectFieldOffset(field(name)), value);
  }

  private static Field field(String name) throws Exception {
    return QueueImpl.class.getDeclaredField(name);
  }

  private static sun.misc.Unsafe unsafe() throws Exception {
    Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
    field.setAccessible(true);
    return (sun.misc.Unsafe) field.get(null);
  }
}
