import jakarta.ejb.ActivationConfigProperty;
import jakarta.ejb.MessageDriven;
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
  /** Past the server's log, which puts a head before each line; a line of its own beside colours. */
  private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

  @Override
  public void onMessage(Message message) {
    try {
      if (message.propertyExists("amqsidecarRedeliveryCount")) {
        OUT.print("\nsucceeded\n");
        return;
      }
    } catch (JMSException e) {
      throw new IllegalStateException(e);
    }
    OUT.print("\nfailed\n");
    throw new IllegalStateException("the bean fails");
  }
}
