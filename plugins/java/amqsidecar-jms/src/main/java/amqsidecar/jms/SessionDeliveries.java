package amqsidecar.jms;

/**
 * The last message that a session handed to the application, and what became of it.
 *
 * <p>An error handler may get the exception before or after the roll-back. A roll-back without
 * an exception is therefore explained by its place only when the session goes on.
 */
final class SessionDeliveries {
  private enum State {
    NOTHING,
    DELIVERED,
    EXPLAINED,
    ROLLED_BACK
  }

  /** A roll-back without a known exception. */
  static final class Unexplained {
    static final Unexplained NONE = new Unexplained(Delivery.NONE, null);

    final Delivery delivery;
    final StackTraceElement[] stack;

    Unexplained(Delivery delivery, StackTraceElement[] stack) {
      this.delivery = delivery;
      this.stack = stack;
    }
  }

  private State state = State.NOTHING;
  private Delivery last = Delivery.NONE;
  private Unexplained rollback = Unexplained.NONE;

  /** Learns of a message that the application gets now. */
  synchronized void delivered(Delivery delivery) {
    state = State.DELIVERED;
    last = delivery;
    rollback = Unexplained.NONE;
  }

  /** Returns the message that an exception is about; {@link Delivery#NONE} = there is none. */
  synchronized Delivery failed() {
    if (state != State.NOTHING) {
      state = State.EXPLAINED;
    }
    rollback = Unexplained.NONE;
    return last;
  }

  /** Learns that the application gives its messages back, with the stack of its thread. */
  synchronized void rolledBack(StackTraceElement[] stack) {
    if (state == State.DELIVERED) {
      state = State.ROLLED_BACK;
      rollback = new Unexplained(last, stack);
    }
  }

  /** Learns that the application keeps its messages. */
  synchronized void kept() {
    state = State.NOTHING;
    last = Delivery.NONE;
    rollback = Unexplained.NONE;
  }

  /** Returns and forgets the roll-back that is still without an exception. */
  synchronized Unexplained takeUnexplained() {
    Unexplained taken = rollback;
    rollback = Unexplained.NONE;
    return taken;
  }
}
