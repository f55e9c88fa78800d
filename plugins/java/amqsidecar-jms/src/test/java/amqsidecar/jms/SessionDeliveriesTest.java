package amqsidecar.jms;

import static org.junit.jupiter.api.Assertions.assertSame;

import org.junit.jupiter.api.Test;

class SessionDeliveriesTest {
  private static final StackTraceElement[] PLACE = {};
  private static final Delivery FIRST = new Delivery("ID:1", 0, "", "");
  private static final Delivery SECOND = new Delivery("ID:2", 0, "", "");

  private final SessionDeliveries session = new SessionDeliveries();

  @Test
  void anExceptionIsAboutTheLastDelivery() {
    assertSame(Delivery.NONE, session.failed());
    session.delivered(FIRST);
    session.delivered(SECOND);
    assertSame(SECOND, session.failed());
  }

  @Test
  void aRollbackIsExplainedOnceAsTheSessionGoesOn() {
    session.delivered(FIRST);
    session.rolledBack(PLACE);
    SessionDeliveries.Unexplained found = session.takeUnexplained();
    assertSame(FIRST, found.delivery);
    assertSame(PLACE, found.stack);
    assertSame(SessionDeliveries.Unexplained.NONE, session.takeUnexplained());
  }

  @Test
  void anExceptionAfterTheRollbackIsInItsPlace() {
    session.delivered(FIRST);
    session.rolledBack(PLACE);
    assertSame(FIRST, session.failed());
    assertSame(SessionDeliveries.Unexplained.NONE, session.takeUnexplained());
  }

  @Test
  void anExceptionBeforeTheRollbackIsInItsPlace() {
    session.delivered(FIRST);
    session.failed();
    session.rolledBack(PLACE);
    assertSame(SessionDeliveries.Unexplained.NONE, session.takeUnexplained());
  }

  @Test
  void whatIsKeptHasNotFailed() {
    session.delivered(FIRST);
    session.kept();
    assertSame(Delivery.NONE, session.failed());
    session.rolledBack(PLACE);
    assertSame(SessionDeliveries.Unexplained.NONE, session.takeUnexplained());
  }
}
