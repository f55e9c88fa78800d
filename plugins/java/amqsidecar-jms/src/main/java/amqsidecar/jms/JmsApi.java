package amqsidecar.jms;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.LinkedHashSet;
import java.util.Set;

/** The JMS API of an application, {@code javax.jms} or {@code jakarta.jms}, by reflection. */
final class JmsApi {
  private static final String FACTORY = ".jms.ConnectionFactory";
  private static final String MESSAGE = ".jms.Message";

  private final String prefix;
  private final ClassLoader loader;
  final Class<?> connection;
  final Class<?> session;
  final Class<?> context;
  final Class<?> consumer;
  final Class<?> contextConsumer;
  final Class<?> listener;
  final Class<?> destination;
  final Class<?> queue;
  private final Method messageId;
  private final Method property;

  private JmsApi(Class<?> factory) throws ReflectiveOperationException {
    prefix = factory.getName().substring(0, factory.getName().lastIndexOf('.') + 1);
    loader = factory.getClassLoader();
    connection = named("Connection");
    session = named("Session");
    context = optional("JMSContext", session);
    consumer = named("MessageConsumer");
    contextConsumer = optional("JMSConsumer", consumer);
    listener = named("MessageListener");
    destination = named("Destination");
    queue = named("Queue");
    Class<?> message = named("Message");
    messageId = idOf(message);
    property = propertyOf(message);
  }

  /**
   * Returns the API that a connection factory belongs to.
   *
   * @throws IllegalArgumentException it is no connection factory of JMS
   */
  static JmsApi of(Object factory) {
    for (Class<?> one : interfaces(factory.getClass())) {
      String name = one.getName();
      if (name.equals("jakarta" + FACTORY) || name.equals("javax" + FACTORY)) {
        try {
          return new JmsApi(one);
        } catch (ReflectiveOperationException error) {
          throw new IllegalArgumentException("the JMS API of " + name + " is incomplete", error);
        }
      }
    }
    throw new IllegalArgumentException(
        factory.getClass().getName() + " is no connection factory of javax.jms or jakarta.jms");
  }

  ClassLoader loader() {
    return loader;
  }

  /** Returns the interfaces of JMS that an object has. */
  Class<?>[] interfacesOf(Object object) {
    Set<Class<?>> found = interfaces(object.getClass());
    found.removeIf(one -> !one.getName().startsWith(prefix) || one.getClassLoader() != loader);
    return found.toArray(new Class<?>[0]);
  }

  /**
   * Returns a message as a note names it; {@link Delivery#NONE} = it has no id, or can't be read.
   *
   * @param read the queue that it came from
   */
  Delivery deliveryOf(Object message, ReadQueue read) {
    return deliveryOf(message, messageId, property, read.json(message, this));
  }

  /** Returns the name of a queue or a topic; "" = it has none. */
  String nameOf(Object named) {
    String kind = queue.isInstance(named) ? "Queue" : "Topic";
    return text(kind, named, "get" + kind + "Name");
  }

  /** Returns the queue that a message names as its destination; "" = it names none. */
  String queueOf(Object message) {
    Object found = ask("Message", message, "getJMSDestination");
    return queue.isInstance(found) ? nameOf(found) : "";
  }

  /** Returns the client id of a connection or a context; "" = it has none. */
  String clientIdOf(Object owner) {
    return text(context.isInstance(owner) ? "JMSContext" : "Connection", owner, "getClientID");
  }

  private String text(String type, Object target, String method) {
    Object found = ask(type, target, method);
    return found == null ? "" : found.toString();
  }

  /** Asks an object and ignores all that it throws; null = it has no answer. */
  private Object ask(String type, Object target, String method) {
    try {
      return call(type, target, method, new Class<?>[0]);
    } catch (Exception error) {
      return null;
    }
  }

  /**
   * Returns a message of either API as a note names it, without its queue; {@link Delivery#NONE} =
   * it has no id, can't be read, or is no message.
   */
  static Delivery deliveryOfAny(Object message) {
    for (Class<?> one : interfaces(message.getClass())) {
      String name = one.getName();
      if (name.equals("jakarta" + MESSAGE) || name.equals("javax" + MESSAGE)) {
        try {
          return deliveryOf(message, idOf(one), propertyOf(one), "");
        } catch (ReflectiveOperationException error) {
          return Delivery.NONE;
        }
      }
    }
    return Delivery.NONE;
  }

  private static Delivery deliveryOf(
      Object message, Method messageId, Method property, String queue) {
    try {
      Object id = messageId.invoke(message);
      if (id == null) {
        return Delivery.NONE;
      }
      Object count = property.invoke(message, "amqsidecarRedeliveryCount");
      Object trace = property.invoke(message, "traceparent");
      return new Delivery(
          id.toString(),
          count == null ? 0 : Integer.parseInt(count.toString()),
          queue,
          trace == null ? "" : trace.toString());
    } catch (ReflectiveOperationException | RuntimeException error) {
      return Delivery.NONE;
    }
  }

  private static Method idOf(Class<?> message) throws NoSuchMethodException {
    return message.getMethod("getJMSMessageID");
  }

  private static Method propertyOf(Class<?> message) throws NoSuchMethodException {
    return message.getMethod("getObjectProperty", String.class);
  }

  /**
   * Calls a method of an interface of JMS, by the types of its parameters.
   *
   * @throws Exception what the method throws
   */
  Object call(String type, Object target, String method, Class<?>[] parameters, Object... arguments)
      throws Exception {
    try {
      return named(type).getMethod(method, parameters).invoke(target, arguments);
    } catch (InvocationTargetException error) {
      if (error.getCause() instanceof Exception) {
        throw (Exception) error.getCause();
      }
      throw error;
    }
  }

  Class<?> named(String type) throws ClassNotFoundException {
    return Class.forName(prefix + type, false, loader);
  }

  /** Returns an interface that came with JMS 2.0; in an older API another one in its place. */
  private Class<?> optional(String type, Class<?> other) {
    try {
      return named(type);
    } catch (ClassNotFoundException old) {
      return other;
    }
  }

  private static Set<Class<?>> interfaces(Class<?> type) {
    Set<Class<?>> found = new LinkedHashSet<>();
    for (Class<?> one = type; one != null; one = one.getSuperclass()) {
      add(found, one);
    }
    return found;
  }

  private static void add(Set<Class<?>> found, Class<?> type) {
    if (type.isInterface()) {
      found.add(type);
    }
    for (Class<?> one : type.getInterfaces()) {
      add(found, one);
    }
  }
}
