import jakarta.annotation.PostConstruct;
import jakarta.ejb.ActivationConfigProperty;
import jakarta.ejb.MessageDriven;
import jakarta.ejb.Singleton;
import jakarta.ejb.Startup;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageListener;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;

/** A message-driven bean: it fails until the sidecar has sent a message again. */
@MessageDriven(
    activationConfig = {
      @ActivationConfigProperty(propertyName = "destination", propertyValue = "${queue}"),
      @ActivationConfigProperty(propertyName = "destinationType", propertyValue = "jakarta.jms.Queue"),
      @ActivationConfigProperty(propertyName = "useJNDI", propertyValue = "false")
    })
public class OrdersBean implements MessageListener {
  /** Past the server's log, which puts a head before each line. */
  private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

  @Override
  public void onMessage(Message message) {
    try {
      if (message.propertyExists("amqsidecarRedeliveryCount")) {
        say("succeeded");
        return;
      }
    } catch (JMSException e) {
      throw new IllegalStateException(e);
    }
    say("failed");
    throw new IllegalStateException("the bean fails");
  }

  static void say(String word) {
    OUT.println(word);
  }
}

@Singleton
@Startup
class Started {
  @PostConstruct
  void say() {
    OrdersBean.say("ready");
  }
}
