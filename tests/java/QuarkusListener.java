import jakarta.enterprise.context.ApplicationScoped;
import org.eclipse.microprofile.reactive.messaging.Incoming;

import io.quarkus.runtime.StartupEvent;
import io.smallrye.reactive.messaging.amqp.IncomingAmqpMetadata;
import jakarta.enterprise.event.Observes;
import java.util.concurrent.CompletionStage;
import org.eclipse.microprofile.reactive.messaging.Message;

/** A Quarkus application: its method fails until the sidecar has sent a message again. */
@ApplicationScoped
public class QuarkusListener {
  void started(@Observes StartupEvent event) {
    System.out.println("ready");
  }

  @Incoming("work")
  public CompletionStage<Void> receive(Message<String> message) {
    var properties = message.getMetadata(IncomingAmqpMetadata.class).orElseThrow().getProperties();
    if (properties.containsKey("amqsidecarRedeliveryCount")) {
      System.out.println("succeeded");
      return message.ack();
    }
    System.out.println("failed");
    return message.nack(new IllegalStateException("the listener fails"));
  }
}
