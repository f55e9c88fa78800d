package amqsidecar.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class ReadQueueTest {
  private static List<String> names(
      String clientId, boolean isShared, boolean isDurable, boolean isAmqp) {
    return Arrays.asList(ReadQueue.ofSubscription(clientId, "s.1", isShared, isDurable, isAmqp));
  }

  @Test
  void theNameOfASubscriptionIsThatOfCore() {
    assertEquals(List.of("app\\.1.s\\.1"), names("app.1", false, true, false));
    assertEquals(List.of("s\\.1"), names("", true, true, false));
    assertEquals(List.of("nonDurable.s\\.1"), names("", true, false, false));
    assertEquals(List.of("nonDurable.c.s\\.1"), names("c", true, false, false));
  }

  @Test
  void overAmqpTheAcceptorChoosesTheName() {
    assertEquals(List.of("app\\.1.s\\.1", "app.1.s.1"), names("app.1", false, true, true));
    assertEquals(
        List.of("nonDurable.c.s\\.1", "c.s.1:shared-volatile"), names("c", true, false, true));
    assertEquals(
        List.of("ID:x.s\\.1", "ID:x.s.1", "s.1:global", "s\\.1"), names("ID:x", true, true, true));
  }
}
