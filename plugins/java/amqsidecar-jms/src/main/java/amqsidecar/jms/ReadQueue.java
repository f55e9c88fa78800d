package amqsidecar.jms;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Set;

/** The queue that a consumer reads, as the broker names it. */
final class ReadQueue {
  /** Not known. */
  static final ReadQueue UNKNOWN = new ReadQueue(new String[0], false);

  /** Characters of a name; the rest is cut. */
  static final int NAME_MAX = 2_048;

  private static final String CLASSIC_CLIENT = "org.apache.activemq.command.";

  private final String[] names;
  private final boolean isAsMessageSays;

  private ReadQueue(String[] names, boolean isAsMessageSays) {
    this.names = names;
    this.isAsMessageSays = isAsMessageSays;
  }

  /**
   * Returns the queue of a new consumer.
   *
   * @param made the method of the session or context that made the consumer
   * @param arguments of that method, the real objects
   * @param clientId of the connection; "" = none
   */
  static ReadQueue of(JmsApi api, Method made, Object[] arguments, String clientId) {
    if (arguments == null || arguments.length == 0 || !api.destination.isInstance(arguments[0])) {
      return UNKNOWN;
    }
    String name = api.nameOf(arguments[0]);
    if (api.queue.isInstance(arguments[0])) {
      // Why: Classic's clients may read several queues at once, and its messages name each.
      boolean isSeveral = name.contains(",") || name.contains("*") || name.contains(">");
      boolean isClassic = arguments[0].getClass().getName().startsWith(CLASSIC_CLIENT);
      return new ReadQueue(new String[] {name}, isSeveral && isClassic);
    }
    String method = made.getName();
    boolean isShared = method.startsWith("createShared");
    if (name.contains("::") || !(isShared || method.startsWith("createDurable"))) {
      return name.contains("::") ? new ReadQueue(new String[] {name}, false) : UNKNOWN;
    }
    boolean isAmqp = arguments[0].getClass().getName().startsWith("org.apache.qpid.");
    boolean isDurable = method.contains("Durable");
    return new ReadQueue(
        ofSubscription(clientId, (String) arguments[1], isShared, isDurable, isAmqp), false);
  }

  /** Returns its names as a note has them: none, a text, or a list of which one is meant. */
  String json(Object message, JmsApi api) {
    if (isAsMessageSays) {
      return Json.text(api.queueOf(message), NAME_MAX);
    }
    if (names.length == 1) {
      return Json.text(names[0], NAME_MAX);
    }
    StringBuilder list = new StringBuilder();
    for (String name : names) {
      list.append(list.length() == 0 ? '[' : ',').append(Json.text(name, NAME_MAX));
    }
    return list.length() == 0 ? "" : list.append(']').toString();
  }

  /**
   * Returns the names that Artemis may have given the queue of a subscription.
   *
   * <p>Over AMQP an acceptor chooses between two ways to name it, and a client id that its client
   * invented does not count.
   */
  static String[] ofSubscription(
      String clientId, String name, boolean isShared, boolean isDurable, boolean isAmqp) {
    String core = clientId.isEmpty() ? escaped(name) : escaped(clientId) + "." + escaped(name);
    Set<String> found = new LinkedHashSet<>(Arrays.asList(isDurable ? core : "nonDurable." + core));
    if (isAmqp) {
      String ended = isDurable ? "" : ":shared-volatile";
      found.add((clientId.isEmpty() ? name : clientId + "." + name) + ended);
      if (isShared && (clientId.isEmpty() || clientId.startsWith("ID:"))) {
        found.add(name + ended + ":global");
        found.add((isDurable ? "" : "nonDurable.") + escaped(name));
      }
    }
    return found.toArray(new String[0]);
  }

  private static String escaped(String name) {
    return name.replace("\\", "\\\\").replace(".", "\\.");
  }
}
