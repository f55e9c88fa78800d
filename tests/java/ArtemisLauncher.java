import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.spi.core.security.ActiveMQJAASSecurityManager;

/**
 * Starts an Artemis broker from a broker.xml where its modules are at hand and its command is not:
 * {@code ArtemisLauncher FILE_URL}. Users come from the login configuration "activemq".
 */
public final class ArtemisLauncher {
  public static void main(String[] args) throws Exception {
    EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
    broker.setConfigResourcePath(args[0]);
    broker.setSecurityManager(new ActiveMQJAASSecurityManager("activemq"));
    broker.start();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(broker)));
  }

  private static void stop(EmbeddedActiveMQ broker) {
    try {
      broker.stop();
    } catch (Exception failure) {
      failure.printStackTrace();
    }
  }
}
