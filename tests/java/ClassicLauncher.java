import org.apache.activemq.broker.BrokerFactory;
import org.apache.activemq.broker.BrokerService;

/** Starts an ActiveMQ Classic broker from an activemq.xml: {@code ClassicLauncher FILE_URL}. */
public final class ClassicLauncher {
  private static volatile BrokerService parked;

  public static void main(String[] args) throws Exception {
    start(args[0]);
  }

  public static AutoCloseable start(String url) throws Exception {
    BrokerService broker = BrokerFactory.createBroker("xbean:" + url);
    if (!broker.isStarted()) {
      broker.start();
    }
    new Thread(() -> endWith(broker), "end").start();
    return () -> {
      parked = broker;
      broker.stop();
    };
  }

  /** Ends the process with a broker that stops by itself. */
  private static void endWith(BrokerService broker) {
    broker.waitUntilStopped();
    if (broker != parked) {
      System.exit(0);
    }
  }
}
