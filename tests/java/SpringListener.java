import jakarta.jms.JMSException;
import jakarta.jms.Message;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.jms.annotation.JmsListener;

/** A Spring Boot application: its listener fails until the sidecar has sent a message again. */
@SpringBootConfiguration
@EnableAutoConfiguration
public class SpringListener {
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
