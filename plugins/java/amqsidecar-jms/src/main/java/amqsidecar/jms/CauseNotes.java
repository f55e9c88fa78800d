package amqsidecar.jms;

import java.util.function.Function;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Writes notes about failed deliveries to the sidecar's queue of notes.
 *
 * <pre>{@code
 * CauseNotes notes = CauseNotes.through(factory).consumer("orders-service", "1.4.2").build();
 * ConnectionFactory noticed = notes.wrap(ConnectionFactory.class, factory);
 * }</pre>
 *
 * <p>No method after {@code build} and {@code wrap} throws, and none waits longer than 100 ms. A
 * note that can't be written costs the cause and nothing else. All methods may be called by any
 * thread.
 */
public final class CauseNotes implements AutoCloseable {
  /** The queue that {@code intake.cause_notes} names by custom. */
  public static final String QUEUE = "amqsidecar.causes";

  private static final long WAIT_MS = 100;
  private static final Logger LOG = Logger.getLogger("amqsidecar.jms");

  private final NotePost post;
  private final String consumer;
  private final String version;
  private final Function<Throwable, Verdict> verdicts;
  private final GivenMessages given = new GivenMessages();
  private final ThreadLocal<SessionDeliveries> current =
      ThreadLocal.withInitial(SessionDeliveries::new);

  private CauseNotes(Builder builder) {
    post = new NotePost(builder.writer(), builder.waitMs);
    consumer = builder.consumer;
    version = builder.version;
    verdicts = builder.verdicts;
  }

  /**
   * Begins with notes over a JMS connection of their own.
   *
   * @param factory a connection factory of {@code javax.jms} or {@code jakarta.jms} that knows the
   *     login
   * @throws IllegalArgumentException it is no connection factory of JMS
   */
  public static Builder through(Object factory) {
    JmsApi api = JmsApi.of(factory);
    return new Builder(queue -> new JmsNoteWriter(api, factory, queue));
  }

  /** Begins with notes that the application itself writes to the queue of notes. */
  public static Builder by(NoteWriter writer) {
    return new Builder(queue -> writer);
  }

  /**
   * Returns a connection factory whose sessions notice failed deliveries.
   *
   * <p>A note is written where an exception leaves a {@code MessageListener}. After a roll-back or a
   * recover without {@link #failed(Throwable)} it is written with the session's next call and
   * names only the place of the roll-back.
   *
   * @param type the interface that the application uses, such as {@code ConnectionFactory.class}
   * @throws IllegalArgumentException it is no connection factory of JMS
   */
  public <T> T wrap(Class<T> type, T factory) {
    return type.cast(JmsProxy.of(factory, this, JmsApi.of(factory)));
  }

  /**
   * Writes a note about the last message that a wrapped session gave to this thread.
   *
   * <p>A Spring {@code ErrorHandler} that calls it must also log: Spring logs a failure only where no
   * handler is set. Without such a message it does nothing.
   */
  public void failed(Throwable thrown) {
    quietly(() -> write(current.get().failed(), thrown));
  }

  /**
   * Writes a note about a message.
   *
   * <p>The note names the queue of a message that a wrapped session gave to the application.
   *
   * @param message a {@code javax.jms.Message} or {@code jakarta.jms.Message}, by whatever session
   */
  public void failed(Object message, Throwable thrown) {
    quietly(
        () -> {
          Delivery known = given.find(message);
          write(known == Delivery.NONE ? JmsApi.deliveryOfAny(message) : known, thrown);
        });
  }

  /**
   * Writes a note about a message that did not come by JMS.
   *
   * @param messageId the AMQP message-id as text, or what the client calls its id
   * @param redeliveryCount the application property {@code amqsidecarRedeliveryCount}; 0 without it
   * @param queue that the message was read from; "" = not known, see {@code cause-notes.md}
   */
  public void failed(String messageId, int redeliveryCount, String queue, Throwable thrown) {
    quietly(
        () -> {
          String json = queue.isEmpty() ? "" : Json.text(queue, ReadQueue.NAME_MAX);
          write(new Delivery(messageId, redeliveryCount, json, ""), thrown);
        });
  }

  /** Writes such a note without a queue. */
  public void failed(String messageId, int redeliveryCount, Throwable thrown) {
    failed(messageId, redeliveryCount, "", thrown);
  }

  /** Writes what waits, for at most 100 ms, and ends the connection of the notes. */
  @Override
  public void close() {
    post.close();
  }

  void delivered(SessionDeliveries deliveries, Object message, Delivery delivery) {
    given.add(message, delivery);
    deliveries.delivered(delivery);
    current.set(deliveries);
  }

  /** Explains a roll-back by its place, unless the application has reported its exception. */
  void explainRollback(SessionDeliveries deliveries) {
    quietly(
        () -> {
          SessionDeliveries.Unexplained found = deliveries.takeUnexplained();
          if (found != SessionDeliveries.Unexplained.NONE) {
            write(found.delivery, Failure.rollback(found.stack), Verdict.NONE, false);
          }
        });
  }

  private void write(Delivery delivery, Throwable thrown) {
    write(delivery, Failure.of(thrown), verdictOn(Failure.unwrapped(thrown)), true);
  }

  private void write(Delivery delivery, Failure failure, Verdict verdict, boolean waits) {
    if (!delivery.messageId.isEmpty()) {
      post.post(CauseNote.json(delivery, failure, verdict, consumer, version), waits);
    }
  }

  private Verdict verdictOn(Throwable thrown) {
    try {
      Verdict found = verdicts.apply(thrown);
      return found == null ? Verdict.NONE : found;
    } catch (RuntimeException error) {
      LOG.log(Level.WARNING, "the function of verdicts failed", error);
      return Verdict.NONE;
    }
  }

  /** Runs a task and catches all that it throws, also from the exception's own methods. */
  private static void quietly(Runnable task) {
    try {
      task.run();
    } catch (Throwable error) {
      LOG.log(Level.WARNING, "a note of a failed delivery is lost", error);
    }
  }

  /** Settings of {@link CauseNotes}. */
  public static final class Builder {
    private final Function<String, NoteWriter> writers;
    private String queue = QUEUE;
    private String consumer = "";
    private String version = "";
    private long waitMs = WAIT_MS;
    private Function<Throwable, Verdict> verdicts = thrown -> Verdict.NONE;

    private Builder(Function<String, NoteWriter> writers) {
      this.writers = writers;
    }

    /** Sets the application's name and version. */
    public Builder consumer(String name, String itsVersion) {
      consumer = name;
      version = itsVersion;
      return this;
    }

    /** Sets a queue in place of {@link CauseNotes#QUEUE}. */
    public Builder queue(String name) {
      queue = name;
      return this;
    }

    /**
     * Sets the function of verdicts. It gets the application's exception without the wrappers of
     * frameworks.
     */
    public Builder verdicts(Function<Throwable, Verdict> function) {
      verdicts = function;
      return this;
    }

    /** Sets the longest wait for a note, for tests. */
    Builder waitMs(long longest) {
      waitMs = longest;
      return this;
    }

    public CauseNotes build() {
      return new CauseNotes(this);
    }

    private NoteWriter writer() {
      return writers.apply(queue);
    }
  }
}
