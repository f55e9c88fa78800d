package amqsidecar.jms;

/** A message as a note names it: texts only, so that it keeps no body in memory. */
final class Delivery {
  /** No message. */
  static final Delivery NONE = new Delivery("", 0, "");

  final String messageId;
  final int redeliveryCount;
  final String traceparent;

  /**
   * Makes it.
   *
   * @param messageId as the consumer sees it; "" = none
   * @param redeliveryCount redeliveries by the sidecar, 0 = none yet
   * @param traceparent W3C trace context; "" = none
   */
  Delivery(String messageId, int redeliveryCount, String traceparent) {
    this.messageId = messageId;
    this.redeliveryCount = redeliveryCount;
    this.traceparent = traceparent;
  }
}
