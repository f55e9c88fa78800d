import amqsidecar.jms.CauseNotes;
import amqsidecar.jms.Verdict;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.time.Duration;

/**
 * A plain consumer that fails until the sidecar has sent a message again.
 *
 * <p>Arguments: provider, URL, queue, queue of notes ("" = without the library), and how it fails. In
 * place of the queue: {@code KIND TOPIC SUBSCRIPTION} and, where there is one, {@code CLIENT-ID}; the
 * kind is durable, shared or shared-durable.
 */
public final class NotedConsumer {
  private static final long WAIT_MS = 200;

  private final CauseNotes notes;
  private final ConnectionFactory factory;
  private final String queue;

  private NotedConsumer(ConnectionFactory plain, String queue, String noteQueue) {
    notes =
        CauseNotes.through(plain)
            .queue(noteQueue.isEmpty() ? CauseNotes.QUEUE : noteQueue)
            .consumer("orders-service", "1.4.2")
            .verdicts(
                thrown ->
                    thrown instanceof IllegalArgumentException
                        ? Verdict.retryAfter(Duration.ofMillis(1_500))
                        : Verdict.NONE)
            .build();
    factory = noteQueue.isEmpty() ? plain : notes.wrap(ConnectionFactory.class, plain);
    this.queue = queue;
  }

  public static void main(String[] arguments) throws Exception {
    NotedConsumer consumer =
        new NotedConsumer(factory(arguments[0], arguments[1]), arguments[2], arguments[3]);
    switch (arguments[4]) {
      case "listener" -> consumer.listen();
      case "rollback" -> consumer.receive(Session.SESSION_TRANSACTED, false);
      case "recover" -> consumer.receive(Session.CLIENT_ACKNOWLEDGE, false);
      case "told" -> consumer.receive(Session.SESSION_TRANSACTED, true);
      default -> throw new IllegalArgumentException(arguments[4]);
    }
  }

  private static ConnectionFactory factory(String provider, String url) throws JMSException {
    return switch (provider) {
      case "openwire" -> new org.apache.activemq.ActiveMQConnectionFactory("admin", "admin", url);
      case "qpid" -> NotedConsumer.<ConnectionFactory>made("org.apache.qpid.jms.JmsConnectionFactory", url);
      default ->
          new org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory(
              url, "admin", "admin");
    };
  }

  /** Makes what only one of the two APIs has. */
  @SuppressWarnings("unchecked")
  private static <T> T made(String type, String url) {
    try {
      return (T)
          Class.forName(type)
              .getConstructor(String.class, String.class, String.class)
              .newInstance("admin", "admin", url);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  private Connection connect() throws JMSException {
    Connection connection = factory.createConnection();
    String[] words = queue.split(" ");
    if (words.length > 3) {
      connection.setClientID(words[3]);
    }
    return connection;
  }

  private MessageConsumer consumer(Session session) throws JMSException {
    String[] words = queue.split(" ");
    if (words.length == 1) {
      return session.createConsumer(session.createQueue(queue));
    }
    Topic topic = session.createTopic(words[1]);
    return switch (words[0]) {
      case "durable" -> session.createDurableSubscriber(topic, words[2]);
      case "shared" -> session.createSharedConsumer(topic, words[2]);
      default -> session.createSharedDurableConsumer(topic, words[2]);
    };
  }

  private void listen() throws Exception {
    Connection connection = connect();
    Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    consumer(session)
        .setMessageListener(
            message -> {
              try {
                handle(message);
              } catch (JMSException error) {
                throw new IllegalStateException(error);
              }
            });
    connection.start();
    System.out.println("ready");
    Thread.currentThread().join();
  }

  private void receive(int mode, boolean tells) throws Exception {
    Connection connection = connect();
    Session session = connection.createSession(mode == Session.SESSION_TRANSACTED, mode);
    MessageConsumer consumer = consumer(session);
    connection.start();
    System.out.println("ready");
    while (true) {
      Message message = consumer.receive(WAIT_MS);
      if (message == null) {
        continue;
      }
      try {
        handle(message);
        if (session.getTransacted()) {
          session.commit();
        } else {
          message.acknowledge();
        }
      } catch (RuntimeException error) {
        if (tells) {
          notes.failed(error);
        }
        giveBack(session);
      }
    }
  }

  private static void giveBack(Session session) throws JMSException {
    if (session.getTransacted()) {
      session.rollback();
    } else {
      session.recover();
    }
  }

  private static void handle(Message message) throws JMSException {
    if (message.propertyExists("amqsidecarRedeliveryCount")) {
      System.out.println("succeeded");
      return;
    }
    System.out.println("failed");
    throw new IllegalArgumentException(
        "no stock for item 7", new java.net.ConnectException("Connection refused"));
  }
}
