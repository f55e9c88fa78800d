import java.net.ConnectException;
import java.sql.SQLTransientException;
import java.util.List;
import java.util.concurrent.TimeoutException;

/** An order service with twelve bugs; the number of an order is in most of their texts. */
public final class Bugs {
  private Bugs() {}

  /** Handles an order of a product, each of which meets a bug of its own. */
  public static void handle(String product, int order) throws Exception {
    switch (product) {
      case "apples" -> address(order);
      case "bread" -> quantity(order);
      case "cheese" -> stock(order);
      case "dates" -> warehouse(order);
      case "eggs" -> store(order, new SQLTransientException("deadlock of process " + order));
      case "figs" -> store(order, new ConnectException("Connection refused"));
      case "grapes" -> line(order);
      case "honey" -> kind(order);
      case "ice" -> throw new TimeoutException("no answer of payments after " + (order + 100) + " ms");
      case "juice" -> schema(order);
      case "kale" -> share(order);
      default -> recurse(order);
    }
  }

  private static void address(int order) {
    String street = order < 0 ? "Main Street" : null;
    System.out.println(street.length());
  }

  private static void quantity(int order) {
    Integer.parseInt(order + " pieces");
  }

  private static void stock(int order) {
    throw new IllegalStateException("no stock for item " + order);
  }

  /** Much the same words as {@link #stock}, one of which varies, at another place. */
  private static void warehouse(int order) {
    String customer = List.of("Alice", "Bob", "carol", "dave", "erin").get(order % 5);
    throw new IllegalStateException("no stock for the item of " + customer);
  }

  private static void store(int order, Exception cause) {
    throw new IllegalStateException("order " + order + " can't be stored", cause);
  }

  private static void line(int order) {
    System.out.println(List.of(1, 2).get(order + 3));
  }

  private static void kind(Object order) {
    System.out.println((String) order);
  }

  private static void schema(int order) {
    throw new UnsupportedOperationException("schema version " + order + " is not supported");
  }

  private static void share(int order) {
    System.out.println(1 / (order - order));
  }

  private static int recurse(int order) {
    return recurse(order) + 1;
  }
}
