import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;

/**
 * Runs brokers and ends the process when standard input ends.
 *
 * <p>The parent holds the other end of standard input: however it dies, no broker stays behind.
 *
 * <p>{@code java -cp ... Tether MAIN_CLASS ARGUMENT...} runs another main class.
 *
 * <p>{@code java -cp ... Tether LAUNCHER} runs one broker after another. Lines of standard input say
 * it, words are divided by tabs: {@code start LOG URL NAME=VALUE...} sets system properties and
 * starts a broker, {@code park} stops it and adds the line "parked" to its log.
 */
public final class Tether {
  private static final long GRACE_MS = 10_000;

  private static volatile AutoCloseable broker;

  public static void main(String[] args) throws Exception {
    Thread watch = new Thread(() -> obey(args[0]), "tether");
    watch.setDaemon(args.length > 1);
    watch.start();
    if (args.length > 1) {
      String[] rest = new String[args.length - 1];
      System.arraycopy(args, 1, rest, 0, rest.length);
      Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }
  }

  private static void obey(String launcher) {
    try {
      BufferedReader orders =
          new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String order = orders.readLine(); order != null; order = orders.readLine()) {
        String[] words = order.split("\t");
        if (words[0].equals("park")) {
          perform(Tether::park);
        } else {
          perform(() -> start(launcher, words));
        }
      }
    } catch (IOException closed) {
      // The same as the end of the stream.
    }
    end();
  }

  /** Performs an order in a thread of its own: the end of standard input is seen meanwhile. */
  private static void perform(Order order) {
    new Thread(() -> {
      try {
        order.perform();
      } catch (Throwable failure) {
        failure.printStackTrace();
        Runtime.getRuntime().halt(1);
      }
    }, "order").start();
  }

  private static void start(String launcher, String[] words) throws Exception {
    PrintStream log = new PrintStream(new FileOutputStream(words[1], true), true, "UTF-8");
    System.setOut(log);
    System.setErr(log);
    for (int place = 3; place < words.length; place++) {
      String[] property = words[place].split("=", 2);
      System.setProperty(property[0], property[1]);
    }
    Class.forName("org.apache.logging.log4j.core.config.Configurator")
        .getMethod("reconfigure", URI.class)
        .invoke(null, URI.create("file:" + System.getProperty("log4j2.configurationFile")));
    broker =
        (AutoCloseable)
            Class.forName(launcher).getMethod("start", String.class).invoke(null, words[2]);
  }

  private static void park() throws Exception {
    broker.close();
    System.out.println("parked");
  }

  private static void end() {
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

  private interface Order {
    void perform() throws Exception;
  }
}
