import java.io.IOException;

/**
 * Runs another main class and ends the process when standard input ends.
 *
 * <p>The parent holds the other end of standard input: however it dies, no broker stays behind.
 * Usage: {@code java -cp ... Tether MAIN_CLASS ARGUMENT...}
 */
public final class Tether {
  private static final long GRACE_MS = 10_000;

  public static void main(String[] args) throws Exception {
    Thread watch = new Thread(Tether::endWithParent, "tether");
    watch.setDaemon(true);
    watch.start();
    String[] rest = new String[args.length - 1];
    System.arraycopy(args, 1, rest, 0, rest.length);
    Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
  }

  private static void endWithParent() {
    try {
      while (System.in.read() >= 0) {
        continue;
      }
    } catch (IOException closed) {
      // The same as the end of the stream.
    }
    Thread deadline = new Thread(() -> {
      try {
        Thread.sleep(GRACE_MS);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
      }
      Runtime.getRuntime().halt(1);
    }, "tether-deadline");
    deadline.setDaemon(true);
    deadline.start();
    System.exit(0);
  }
}
