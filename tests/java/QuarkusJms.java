import io.quarkus.runtime.StartupEvent;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.enterprise.event.Observes;
import jakarta.enterprise.inject.Produces;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import java.util.Optional;
import java.util.concurrent.CompletionStage;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.eclipse.microprofile.config.inject.ConfigProperty;
import org.eclipse.microprofile.reactive.messaging.Incoming;
import io.smallrye.reactive.messaging.jms.IncomingJmsMessageMetadata;

/** A Quarkus application with JMS: it fails until the sidecar has sent a message again. */
@ApplicationScoped
public class QuarkusJms {
  @Produces
  @ApplicationScoped
  ConnectionFactory factory(@ConfigProperty(name = "jms.url") String url) {
    return new JmsConnectionFactory("admin", "admin", url);
  }

  /** Reads `jms.queue` itself, in a transaction that it rolls back. */
  void started(
      @Observes StartupEvent event,
      ConnectionFactory factory,
      @ConfigProperty(name = "jms.queue") Optional<String> queue) {
    if (queue.isPresent()) {
      new Thread(() -> read(factory, queue.get()), "reader").start();
    } else {
      System.out.println("ready");
    }
  }

  private static void read(ConnectionFactory factory, String queue) {
    try (JMSContext context = factory.createContext(JMSContext.SESSION_TRANSACTED);
        var consumer = context.createConsumer(context.createQueue(queue))) {
      System.out.println("ready");
      while (true) {
        Message message = consumer.receive();
        if (message.propertyExists("amqsidecarRedeliveryCount")) {
          System.out.println("succeeded");
          context.commit();
        } else {
          System.out.println("failed");
          context.rollback();
        }
      }
    } catch (JMSException e) {
      throw new IllegalStateException(e);
    }
  }

  @Incoming("work")
  public CompletionStage<Void> receive(
      org.eclipse.microprofile.reactive.messaging.Message<String> message) {
    var header = message.getMetadata(IncomingJmsMessageMetadata.class).orElseThrow();
    if (header.getProperties().propertyExists("amqsidecarRedeliveryCount")) {
      System.out.println("succeeded");
      return message.ack();
    }
    System.out.println("failed");
    return message.nack(new IllegalStateException("the listener fails"));
  }
}
