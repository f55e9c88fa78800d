package amqsidecar.jms;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/**
 * A proxy of a connection factory or of an object made by it; it notices failed deliveries.
 *
 * <p>Each call goes to the real object, with the same arguments, and its result or exception comes
 * back. Messages, producers and destinations are the real ones.
 */
final class JmsProxy implements InvocationHandler {
  private final Object target;
  private final CauseNotes notes;
  private final JmsApi api;
  private final SessionDeliveries deliveries;

  /** The connection or context that a session belongs to; null = this is none. */
  private final Object owner;

  private final ReadQueue read;

  private JmsProxy(
      Object target,
      CauseNotes notes,
      JmsApi api,
      SessionDeliveries deliveries,
      Object owner,
      ReadQueue read) {
    this.target = target;
    this.notes = notes;
    this.api = api;
    this.deliveries = deliveries;
    this.owner = owner;
    this.read = read;
  }

  /** Returns a proxy of a connection factory with all of its JMS interfaces. */
  static Object of(Object factory, CauseNotes notes, JmsApi api) {
    return proxy(
        new JmsProxy(factory, notes, api, new SessionDeliveries(), null, ReadQueue.UNKNOWN));
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    Object[] given = real(arguments);
    if (method.getDeclaringClass() == Object.class) {
      return call(method, given);
    }
    switch (method.getName()) {
      case "receive":
      case "receiveNoWait":
        notes.explainRollback(deliveries);
        Object message = call(method, given);
        if (message != null) {
          notes.delivered(deliveries, message, api.deliveryOf(message, read));
        }
        return message;
      case "rollback":
      case "recover":
        deliveries.rolledBack(Thread.currentThread().getStackTrace());
        return call(method, given);
      case "commit":
      case "acknowledge":
        notes.explainRollback(deliveries);
        Object nothing = call(method, given);
        deliveries.kept();
        return nothing;
      case "close":
        notes.explainRollback(deliveries);
        return call(method, given);
      default:
        return noticed(call(method, given), method, given);
    }
  }

  /** Returns a result as the application gets it. */
  private Object noticed(Object result, Method method, Object[] given) {
    if (api.session.isInstance(result) || api.context.isInstance(result)) {
      Object connection = api.context.isInstance(result) ? result : owner;
      return proxy(new JmsProxy(result, notes, api, new SessionDeliveries(), connection, read));
    }
    if (api.connection.isInstance(result)) {
      return proxy(new JmsProxy(result, notes, api, deliveries, result, read));
    }
    if (api.consumer.isInstance(result) || api.contextConsumer.isInstance(result)) {
      ReadQueue its = ReadQueue.of(api, method, given, api.clientIdOf(owner));
      return proxy(new JmsProxy(result, notes, api, deliveries, owner, its));
    }
    return real(result);
  }

  /** Returns arguments as the real object gets them. */
  private Object[] real(Object[] arguments) {
    if (arguments == null) {
      return null;
    }
    Object[] given = arguments.clone();
    for (int index = 0; index < given.length; index++) {
      given[index] =
          api.listener.isInstance(given[index]) ? listening(given[index]) : real(given[index]);
    }
    return given;
  }

  private static Object real(Object object) {
    if (object != null && Proxy.isProxyClass(object.getClass())) {
      InvocationHandler handler = Proxy.getInvocationHandler(object);
      if (handler instanceof JmsProxy) {
        return ((JmsProxy) handler).target;
      }
      if (handler instanceof Listening) {
        return ((Listening) handler).listener;
      }
    }
    return object;
  }

  private Object listening(Object listener) {
    Class<?>[] only = {api.listener};
    return Proxy.newProxyInstance(api.loader(), only, new Listening(listener));
  }

  private Object call(Method method, Object[] arguments) throws Throwable {
    return call(target, method, arguments);
  }

  private static Object call(Object target, Method method, Object[] arguments) throws Throwable {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException thrown) {
      throw thrown.getCause();
    }
  }

  private static Object proxy(JmsProxy handler) {
    JmsApi api = handler.api;
    return Proxy.newProxyInstance(api.loader(), api.interfacesOf(handler.target), handler);
  }

  /** A listener of the application. */
  private final class Listening implements InvocationHandler {
    private final Object listener;

    Listening(Object listener) {
      this.listener = listener;
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
      if (!method.getName().equals("onMessage")) {
        return call(listener, method, arguments);
      }
      notes.explainRollback(deliveries);
      notes.delivered(deliveries, arguments[0], api.deliveryOf(arguments[0], read));
      try {
        return call(listener, method, arguments);
      } catch (Throwable thrown) {
        notes.failed(thrown);
        throw thrown;
      }
    }
  }
}
