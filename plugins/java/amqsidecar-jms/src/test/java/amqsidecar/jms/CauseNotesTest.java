package amqsidecar.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;

class CauseNotesTest {
  private final List<String> written = new CopyOnWriteArrayList<>();

  private CauseNotes.Builder written() {
    return CauseNotes.by(written::add).waitMs(60_000);
  }

  private static final class Awkward extends RuntimeException {
    private static final long serialVersionUID = 1;

    @Override
    public String getMessage() {
      throw new IllegalStateException("no message");
    }
  }

  @Test
  void aNoteHasTheConsumerAndItsVerdict() {
    try (CauseNotes notes =
        written()
            .consumer("orders", "1.4")
            .verdicts(thrown -> Verdict.retryAfter(Duration.ofMinutes(10)))
            .build()) {
      notes.failed("ID:1", 2, "orders", bare(new IllegalStateException("no stock")));
    }
    assertEquals(
        List.of(
            "{\"message_id\":\"ID:1\",\"redelivery_count\":2,\"queue\":\"orders\","
                + "\"exception\":\"java.lang.IllegalStateException\",\"text\":\"no stock\","
                + "\"consumer\":\"orders\",\"consumer_version\":\"1.4\","
                + "\"verdict\":{\"action\":\"retry_after\",\"delay_ms\":600000}}"),
        written);
  }

  @Test
  void whatIsAskedOfAnExceptionMayFail() {
    try (CauseNotes notes =
        written()
            .verdicts(
                thrown -> {
                  throw new IllegalStateException();
                })
            .build()) {
      notes.failed("ID:1", 0, bare(new Exception()));
      notes.failed("ID:2", 0, new Awkward());
      notes.failed(new Exception("nothing was delivered to this thread"));
      notes.failed(new Object(), new Exception("no message"));
    }
    assertEquals(
        List.of("{\"message_id\":\"ID:1\",\"redelivery_count\":0,\"exception\":\"java.lang.Exception\"}"),
        written);
  }

  @Test
  void aNoteIsSmallWhateverTheTextsAre() {
    String long1 = "\u0001".repeat(100_000);
    try (CauseNotes notes = written().consumer(long1, long1).build()) {
      notes.failed(long1, 0, new Exception(long1, new Exception(long1)));
    }
    assertTrue(written.get(0).length() < 65_536, () -> "" + written.get(0).length());
  }

  @Test
  void onlyAConnectionFactoryCanBeWrapped() {
    assertThrows(IllegalArgumentException.class, () -> CauseNotes.through("a text"));
  }

  private static Throwable bare(Throwable thrown) {
    thrown.setStackTrace(new StackTraceElement[0]);
    return thrown;
  }
}
