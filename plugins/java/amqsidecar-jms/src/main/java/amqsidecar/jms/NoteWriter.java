package amqsidecar.jms;

/**
 * Writes notes to the queue of notes. One thread calls it.
 *
 * <p>An application without JMS gives one of its own to {@link CauseNotes#by}.
 */
public interface NoteWriter extends AutoCloseable {
  /**
   * Writes one note, a JSON object, as a text message.
   *
   * @throws Exception the note is not written; the writer is closed then, and used again later
   */
  void write(String note) throws Exception;

  /** Ends its connection; a later {@link #write} opens a new one. */
  @Override
  default void close() {}
}
