package amqsidecar.jms;

import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Writes notes on a thread of its own, which starts with the first note.
 *
 * <p>It never throws. Notes are dropped while the queue of notes can't be reached, and where more
 * than {@link #WAITING_MAX} wait.
 */
final class NotePost implements AutoCloseable {
  static final int WAITING_MAX = 1_000;

  private static final Logger LOG = Logger.getLogger("amqsidecar.jms");
  private static final long FIRST_PAUSE_MS = 1_000;
  private static final long LONGEST_PAUSE_MS = 30_000;
  private static final long STUCK_NANOS = TimeUnit.SECONDS.toNanos(1);
  private static final long IDLE = Long.MIN_VALUE;

  private static final class Letter {
    final String note;
    final CountDownLatch isDone = new CountDownLatch(1);

    Letter(String note) {
      this.note = note;
    }
  }

  private final NoteWriter writer;
  private final long waitMs;
  private final BlockingQueue<Letter> waiting = new ArrayBlockingQueue<>(WAITING_MAX);
  private final Thread thread;
  private boolean isStarted;
  private volatile boolean isClosed;
  private volatile boolean isDown;
  private volatile long busySinceNanos = IDLE;

  /**
   * Makes it.
   *
   * @param waitMs the longest that a caller waits
   */
  NotePost(NoteWriter writer, long waitMs) {
    this.writer = writer;
    this.waitMs = waitMs;
    thread = new Thread(this::run, "amqsidecar-notes");
    thread.setDaemon(true);
  }

  /**
   * Writes a note.
   *
   * @param waits until it is written, so that it is there before the message dies
   */
  void post(String note, boolean waits) {
    if (isClosed || isDown) {
      return;
    }
    start();
    Letter letter = new Letter(note);
    if (!waiting.offer(letter) || !waits || isStuck()) {
      return;
    }
    try {
      letter.isDone.await(waitMs, TimeUnit.MILLISECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Writes what waits, for as long as a caller waits, and ends thread and connection. */
  @Override
  public void close() {
    Letter last = new Letter("");
    synchronized (this) {
      if (isClosed || !isStarted) {
        isClosed = true;
        return;
      }
      waiting.offer(last);
    }
    try {
      last.isDone.await(waitMs, TimeUnit.MILLISECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
    isClosed = true;
    thread.interrupt();
  }

  private synchronized void start() {
    if (!isStarted && !isClosed) {
      isStarted = true;
      thread.start();
    }
  }

  private boolean isStuck() {
    long since = busySinceNanos;
    return since != IDLE && System.nanoTime() - since > STUCK_NANOS;
  }

  private void run() {
    long pauseMs = FIRST_PAUSE_MS;
    try {
      while (!isClosed) {
        Letter letter = waiting.take();
        boolean isWritten = letter.note.isEmpty() || write(letter.note);
        letter.isDone.countDown();
        if (isWritten) {
          pauseMs = FIRST_PAUSE_MS;
          continue;
        }
        rest(pauseMs);
        pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      }
    } catch (InterruptedException interrupted) {
      // Why nothing: `close` ends the thread.
    } finally {
      shut();
    }
  }

  /** Writes on a new connection, too, where the one at hand has ended. */
  private boolean write(String note) {
    for (int attempt = 0; attempt < 2; attempt++) {
      busySinceNanos = System.nanoTime();
      try {
        writer.write(note);
        return true;
      } catch (Throwable error) {
        shut();
        if (attempt > 0 && !isClosed) {
          LOG.log(Level.WARNING, "a note of a failed delivery is lost: {0}", error.toString());
        }
      } finally {
        busySinceNanos = IDLE;
      }
    }
    return false;
  }

  /** Drops notes during a pause. */
  private void rest(long pauseMs) throws InterruptedException {
    isDown = true;
    try {
      Letter dropped = waiting.poll();
      while (dropped != null) {
        dropped.isDone.countDown();
        dropped = waiting.poll();
      }
      Thread.sleep(pauseMs);
    } finally {
      isDown = false;
    }
  }

  private void shut() {
    try {
      writer.close();
    } catch (Throwable error) {
      LOG.log(Level.FINE, "the connection of notes did not close", error);
    }
  }
}
