import amqsidecar.jms.CauseNotes;
import jakarta.jms.ConnectionFactory;
import org.apache.camel.Exchange;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.BaseMainSupport;
import org.apache.camel.main.Main;
import org.apache.camel.main.MainListenerSupport;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.util.ErrorHandler;

/** A Camel route with the bugs of {@link Bugs}. Provider, URL, endpoint, queue of notes or "". */
public final class CamelOrders {
  public static void main(String[] args) throws Exception {
    ConnectionFactory factory =
        args[0].equals("openwire")
            ? new org.apache.activemq.ActiveMQConnectionFactory("admin", "admin", args[1])
            : new org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory(
                args[1], "admin", "admin");
    CauseNotes notes =
        CauseNotes.through(factory).queue(args[3]).consumer("orders-route", "1.4.2").build();
    boolean writes = !args[3].isEmpty();
    Main main = new Main();
    main.bind(
        "connectionFactory", writes ? notes.wrap(ConnectionFactory.class, factory) : factory);
    Logger log = LoggerFactory.getLogger(CamelOrders.class);
    ErrorHandler handler =
        thrown -> {
          notes.failed(thrown);
          log.warn("Execution of JMS message listener failed", thrown);
        };
    main.bind("noteHandler", handler);
    main.configure().addRoutesBuilder(new RouteBuilder() {
      @Override
      public void configure() {
        from(args[2] + (writes ? "&errorHandler=#noteHandler" : "")).process(CamelOrders::handle);
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

  private static void handle(Exchange exchange) throws Exception {
    Bugs.handle(
        exchange.getMessage().getHeader("product", String.class),
        exchange.getMessage().getHeader("n", Integer.class));
  }
}
