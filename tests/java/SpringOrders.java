import amqsidecar.jms.CauseNotes;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.jms.autoconfigure.DefaultJmsListenerContainerFactoryConfigurer;
import org.springframework.context.annotation.Bean;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.config.DefaultJmsListenerContainerFactory;
import org.springframework.jms.listener.DefaultMessageListenerContainer;

/** A Spring Boot application with the bugs of {@link Bugs}; without `notes` it writes none. */
@SpringBootConfiguration
@EnableAutoConfiguration
public class SpringOrders {
  @Bean
  CauseNotes notes(ConnectionFactory factory, @Value("${notes:none}") String queue) {
    return CauseNotes.through(factory).queue(queue).consumer("orders-service", "1.4.2").build();
  }

  @Bean
  DefaultJmsListenerContainerFactory jmsListenerContainerFactory(
      ConnectionFactory factory,
      DefaultJmsListenerContainerFactoryConfigurer configurer,
      CauseNotes notes,
      @Value("${notes:}") String queue) {
    DefaultJmsListenerContainerFactory made = new DefaultJmsListenerContainerFactory();
    if (queue.isEmpty()) {
      configurer.configure(made, factory);
    } else {
      configurer.configure(made, notes.wrap(ConnectionFactory.class, factory));
      Log log = LogFactory.getLog(DefaultMessageListenerContainer.class);
      made.setErrorHandler(
          thrown -> {
            notes.failed(thrown);
            log.warn("Execution of JMS message listener failed", thrown);
          });
    }
    return made;
  }

  @JmsListener(destination = "${queue}")
  public void receive(Message message) throws Exception {
    Bugs.handle(message.getStringProperty("product"), message.getIntProperty("n"));
  }

  public static void main(String[] args) {
    SpringApplication.run(SpringOrders.class, args);
    System.out.println("ready");
  }
}
