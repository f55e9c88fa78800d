package amqsidecar.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;

class NotePostTest {
  private static final long LONG_MS = 60_000;
  private static final long SHORT_MS = 10;

  private final List<String> written = new CopyOnWriteArrayList<>();

  @Test
  void aNoteIsWrittenBeforeItsCallerGoesOn() {
    try (NotePost post = new NotePost(written::add, LONG_MS)) {
      post.post("one", true);
      assertEquals(List.of("one"), written);
    }
  }

  @Test
  void whatWaitsIsWrittenAtTheEnd() {
    NotePost post = new NotePost(written::add, LONG_MS);
    post.post("one", false);
    post.post("two", false);
    post.close();
    assertEquals(List.of("one", "two"), written);
    post.post("three", true);
    assertEquals(2, written.size());
  }

  @Test
  void aBrokenConnectionIsReplacedAtOnce() {
    boolean[] isBroken = {true};
    NoteWriter writer =
        note -> {
          if (isBroken[0]) {
            isBroken[0] = false;
            throw new IOException("reset");
          }
          written.add(note);
        };
    try (NotePost post = new NotePost(writer, LONG_MS)) {
      post.post("one", true);
      assertEquals(List.of("one"), written);
    }
  }

  @Test
  void aWriterThatHangsStopsNobody() {
    CountDownLatch released = new CountDownLatch(1);
    NotePost post = new NotePost(note -> released.await(), SHORT_MS);
    assertTimeoutPreemptively(
        Duration.ofSeconds(60),
        () -> {
          for (int count = 0; count < 2 * NotePost.WAITING_MAX; count++) {
            post.post("note", count < 20);
          }
          post.close();
        });
    released.countDown();
  }

  @Test
  void errorsOfAWriterReachNobody() {
    NoteWriter writer =
        note -> {
          throw new StackOverflowError();
        };
    try (NotePost post = new NotePost(writer, LONG_MS)) {
      for (int count = 0; count < 1_000; count++) {
        post.post("note", true);
      }
    }
  }

  @Test
  void anInterruptStaysAnInterrupt() {
    CountDownLatch released = new CountDownLatch(1);
    try (NotePost post = new NotePost(note -> released.await(), SHORT_MS)) {
      assertFalse(Thread.interrupted());
      Thread.currentThread().interrupt();
      post.post("note", true);
      assertTrue(Thread.interrupted());
      released.countDown();
    }
  }
}
