import javax.security.auth.login.Configuration;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.spi.core.security.ActiveMQJAASSecurityManager;

/** Starts an Artemis broker from a broker.xml; users come from the login configuration "activemq". */
public final class ArtemisLauncher {
  public static AutoCloseable start(String url) throws Exception {
    // The next to ask reads the file that the system property names now.
    Configuration.setConfiguration(null);
    EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
    broker.setConfigResourcePath(url);
    broker.setSecurityManager(new ActiveMQJAASSecurityManager("activemq"));
    broker.start();
    Thread hook = new Thread(() -> stop(broker));
    Runtime.getRuntime().addShutdownHook(hook);
    return () -> {
      Runtime.getRuntime().removeShutdownHook(hook);
      broker.stop();
    };
  }

  private static void stop(EmbeddedActiveMQ broker) {
    try {
      broker.stop();
    } catch (Exception failure) {
      failure.printStackTrace();
    }
  }
}
