import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.camel.Exchange;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;
import org.apache.camel.main.MainListenerSupport;
import org.apache.camel.main.BaseMainSupport;

/** A Camel route: it fails until the sidecar has sent a message again. URL, then JMS endpoint. */
public final class CamelRoute {
  public static void main(String[] args) throws Exception {
    Main main = new Main();
    main.bind("connectionFactory", new ActiveMQConnectionFactory("admin", "admin", args[0]));
    main.configure().addRoutesBuilder(new RouteBuilder() {
      @Override
      public void configure() {
        from(args[1]).process(CamelRoute::handle);
      }
    });
    main.addMainListener(new MainListenerSupport() {
      @Override
      public void afterStart(BaseMainSupport started) {
        System.out.println("ready");
      }
    });
    main.run();
  }

  private static void handle(Exchange exchange) {
    if (exchange.getMessage().getHeader("amqsidecarRedeliveryCount") != null) {
      System.out.println("succeeded");
    } else {
      System.out.println("failed");
      throw new IllegalStateException("the route fails");
    }
  }
}
