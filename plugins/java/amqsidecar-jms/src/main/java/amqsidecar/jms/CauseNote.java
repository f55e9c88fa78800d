package amqsidecar.jms;

/** A note about one failed delivery, in the sidecar's format ({@code cause-notes.md}). */
final class CauseNote {
  private static final int ID_MAX = 1_024;
  private static final int WORD_MAX = 256;
  private static final int TEXT_MAX = 2_000;

  /**
   * Characters of a note with a trace; JSON writes one with six at most. Why: Artemis makes a large
   * message of 100 KiB, and its clients write two bytes for each.
   */
  private static final int NOTE_MAX = 48_000;

  private CauseNote() {}

  /**
   * Returns its JSON object, of less than 64 KiB.
   *
   * @param consumer the application's name; "" = it has none
   * @param version the application's version; "" = it has none
   */
  static String json(
      Delivery delivery, Failure failure, Verdict verdict, String consumer, String version) {
    StringBuilder note = new StringBuilder(512);
    note.append("{\"message_id\":").append(Json.text(delivery.messageId, ID_MAX));
    note.append(",\"redelivery_count\":").append(delivery.redeliveryCount);
    if (!delivery.queue.isEmpty()) {
      note.append(",\"queue\":").append(delivery.queue);
    }
    add(note, "exception", failure.exception, WORD_MAX);
    add(note, "text", failure.text, TEXT_MAX);
    add(note, "root_exception", failure.rootException, WORD_MAX);
    add(note, "root_text", failure.rootText, TEXT_MAX);
    add(note, "stack_hash", failure.stackHash, WORD_MAX);
    add(note, "consumer", consumer, WORD_MAX);
    add(note, "consumer_version", version, WORD_MAX);
    add(note, "traceparent", delivery.traceparent, WORD_MAX);
    if (!verdict.json().isEmpty()) {
      note.append(",\"verdict\":").append(verdict.json());
    }
    int room = NOTE_MAX - note.length();
    String trace = failure.trace;
    if (Json.text(trace, room).length() > room) {
      trace = trace.substring(0, room / 6);
    }
    add(note, "trace", trace, room);
    return note.append('}').toString();
  }

  private static void add(StringBuilder note, String name, String value, int max) {
    if (!value.isEmpty()) {
      note.append(",\"").append(name).append("\":").append(Json.text(value, max));
    }
  }
}
