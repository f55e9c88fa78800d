package amqsidecar.jms;

import static org.junit.jupiter.api.Assertions.assertSame;

import org.junit.jupiter.api.Test;

class GivenMessagesTest {
  private static final Delivery FIRST = new Delivery("ID:1", 0, "\"a\"", "");
  private static final Delivery SECOND = new Delivery("ID:1", 0, "\"b\"", "");

  /** As messages of a client that compares their ids alone. */
  private static final class Copy {
    @Override
    public int hashCode() {
      return 1;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Copy;
    }
  }

  @Test
  void copiesOfOneMessageKeepTheQueueThatEachCameFrom() {
    GivenMessages given = new GivenMessages();
    Copy first = new Copy();
    Copy second = new Copy();
    given.add(first, FIRST);
    given.add(second, SECOND);
    assertSame(FIRST, given.find(first));
    assertSame(SECOND, given.find(second));
    assertSame(Delivery.NONE, given.find(new Copy()));
  }
}
