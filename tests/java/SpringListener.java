import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.annotation.Bean;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;

/** A Spring Boot application: its listener fails until the sidecar has sent a message again. */
@SpringBootConfiguration
@EnableAutoConfiguration
public class SpringListener {
  /** The containers as Spring makes them without Boot; with `bare=true`. */
  @Bean
  @ConditionalOnProperty("bare")
  DefaultJmsListenerContainerFactory jmsListenerContainerFactory(
      ConnectionFactory connections, @Value("${transacted:false}") boolean transacted) {
    DefaultJmsListenerContainerFactory made = new DefaultJmsListenerContainerFactory();
    made.setConnectionFactory(connections);
    if (transacted) {
      made.setSessionTransacted(true);
    }
    return made;
  }

  @JmsListener(destination = "${queue}")
  public void receive(Message message) throws JMSException {
    if (message.propertyExists("amqsidecarRedeliveryCount")) {
      System.out.println("succeeded");
    } else {
      System.out.println("failed");
      throw new IllegalStateException("the listener fails");
    }
  }

  public static void main(String[] args) {
    SpringApplication.run(SpringListener.class, args);
    System.out.println("ready");
  }
}
