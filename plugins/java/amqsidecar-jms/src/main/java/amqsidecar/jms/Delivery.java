package amqsidecar.jms;

/** A message as a note names it: texts only, so that it keeps no body in memory. */
final class Delivery {
  /** No message. */
  static final Delivery NONE = new Delivery("", 0, "", "");

  final String messageId;
  final int redeliveryCount;
  final String queue;
  final String traceparent;

  /**
   * Makes it.
   *
   * @param messageId as the consumer sees it; "" = none
   * @param redeliveryCount redeliveries by the sidecar, 0 = none yet
   * @param queue that it was read from, as JSON; "" = not known
   * @param traceparent W3C trace context; "" = none
   */
  Delivery(String messageId, int redeliveryCount, String queue, String traceparent) {
    this.messageId = messageId;
    this.redeliveryCount = redeliveryCount;
    this.queue = queue;
    this.traceparent = traceparent;
  }
}
