import com.arjuna.ats.jta.TransactionManager;
import com.arjuna.ats.jta.UserTransaction;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageListener;
import org.messaginghub.pooled.jms.JmsPoolXAConnectionFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.integration.config.EnableIntegration;
import org.springframework.integration.dsl.IntegrationFlow;
import org.springframework.integration.jms.dsl.Jms;
import org.springframework.jms.connection.JmsTransactionManager;
import org.springframework.jms.listener.DefaultMessageListenerContainer;
import org.springframework.transaction.jta.JtaTransactionManager;

/** Spring without Boot: fails until the sidecar has sent a message again. Provider, URL, queue, how. */
public final class SpringManaged {
  private static ConnectionFactory plain(String[] args) {
    return args[0].equals("openwire")
        ? new org.apache.activemq.ActiveMQConnectionFactory("admin", "admin", args[1])
        : new org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory(args[1], "admin", "admin");
  }

  private static ConnectionFactory pooled(String[] args) {
    JmsPoolXAConnectionFactory made = new JmsPoolXAConnectionFactory();
    made.setConnectionFactory(
        args[0].equals("openwire")
            ? new org.apache.activemq.ActiveMQXAConnectionFactory("admin", "admin", args[1])
            : new org.apache.activemq.artemis.jms.client.ActiveMQXAConnectionFactory(args[1], "admin", "admin"));
    made.setTransactionManager(TransactionManager.transactionManager());
    return made;
  }

  private static void receive(Message message) {
    try {
      if (message.propertyExists("amqsidecarRedeliveryCount")) {
        System.out.println("succeeded");
        return;
      }
    } catch (JMSException e) {
      throw new IllegalStateException(e);
    }
    System.out.println("failed");
    throw new IllegalStateException("the listener fails");
  }

  private static void container(String[] args) {
    DefaultMessageListenerContainer made = new DefaultMessageListenerContainer();
    made.setDestinationName(args[2]);
    made.setMessageListener((MessageListener) SpringManaged::receive);
    if (args[3].equals("jta")) {
      made.setConnectionFactory(pooled(args));
      made.setTransactionManager(
          new JtaTransactionManager(
              UserTransaction.userTransaction(), TransactionManager.transactionManager()));
    } else {
      ConnectionFactory factory = plain(args);
      made.setConnectionFactory(factory);
      made.setTransactionManager(new JmsTransactionManager(factory));
      if (args[3].equals("cached")) {
        made.setCacheLevel(DefaultMessageListenerContainer.CACHE_CONSUMER);
      }
    }
    made.afterPropertiesSet();
    made.start();
  }

  private static void flow(String[] args) {
    AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();
    context.register(Integration.class);
    context.registerBean(
        "flow",
        IntegrationFlow.class,
        () -> {
          var adapter =
              Jms.messageDrivenChannelAdapter(plain(args)).destination(args[2]).extractPayload(false);
          if (args[3].endsWith("transacted")) {
            adapter.configureListenerContainer(one -> one.sessionTransacted(true));
          }
          if (args[3].startsWith("channel")) {
            adapter.errorChannel("nullChannel");
          }
          return IntegrationFlow.from(adapter)
              .handle(one -> receive((Message) one.getPayload()))
              .get();
        });
    context.refresh();
  }

  @EnableIntegration
  static class Integration {}

  public static void main(String[] args) {
    if (args[3].startsWith("flow") || args[3].startsWith("channel")) {
      flow(args);
    } else {
      container(args);
    }
    System.out.println("ready");
  }
}
