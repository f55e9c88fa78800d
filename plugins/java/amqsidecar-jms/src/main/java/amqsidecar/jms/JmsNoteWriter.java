package amqsidecar.jms;

/** Writes notes over a JMS connection of its own. */
final class JmsNoteWriter implements NoteWriter {
  private static final int AUTO_ACKNOWLEDGE = 1;
  private static final int PERSISTENT = 2;
  private static final int PRIORITY = 4;
  private static final long KEPT_MS = 86_400_000;
  private static final Class<?>[] NO_PARAMETERS = {};

  private final JmsApi api;
  private final Object factory;
  private final String queue;

  // All three are set, or none.
  private Object connection;
  private Object session;
  private Object producer;

  /**
   * Makes it; it connects with the first note.
   *
   * @param factory a connection factory that knows the login
   */
  JmsNoteWriter(JmsApi api, Object factory, String queue) {
    this.api = api;
    this.factory = factory;
    this.queue = queue;
  }

  @Override
  public void write(String note) throws Exception {
    if (producer == null) {
      open();
    }
    Object message =
        api.call("Session", session, "createTextMessage", new Class<?>[] {String.class}, note);
    Class<?>[] parameters = {api.named("Message"), int.class, int.class, long.class};
    api.call(
        "MessageProducer", producer, "send", parameters, message, PERSISTENT, PRIORITY, KEPT_MS);
  }

  @Override
  public void close() {
    Object ended = connection;
    connection = null;
    session = null;
    producer = null;
    if (ended != null) {
      end(ended);
    }
  }

  private void open() throws Exception {
    Object opened = api.call("ConnectionFactory", factory, "createConnection", NO_PARAMETERS);
    try {
      Class<?>[] kind = {boolean.class, int.class};
      Object made = api.call("Connection", opened, "createSession", kind, false, AUTO_ACKNOWLEDGE);
      Class<?>[] name = {String.class};
      Object destination = api.call("Session", made, "createQueue", name, queue);
      Class<?>[] target = {api.named("Destination")};
      producer = api.call("Session", made, "createProducer", target, destination);
      session = made;
      connection = opened;
    } catch (Exception error) {
      end(opened);
      throw error;
    }
  }

  private void end(Object opened) {
    try {
      api.call("Connection", opened, "close", NO_PARAMETERS);
    } catch (Exception ended) {
      // Why ignored: `write` has thrown the error that broke the connection.
    }
  }
}
