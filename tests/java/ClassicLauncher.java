import org.apache.activemq.broker.BrokerFactory;
import org.apache.activemq.broker.BrokerService;

/** Starts an ActiveMQ Classic broker from an activemq.xml: {@code ClassicLauncher FILE_URL}. */
public final class ClassicLauncher {
  public static void main(String[] args) throws Exception {
    BrokerService broker = BrokerFactory.createBroker("xbean:" + args[0]);
    if (!broker.isStarted()) {
      broker.start();
    }
    broker.waitUntilStarted();
    broker.waitUntilStopped();
    System.exit(0);
  }
}
