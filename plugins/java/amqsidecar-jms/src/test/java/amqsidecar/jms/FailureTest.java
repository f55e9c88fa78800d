package amqsidecar.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;

/** Frames of this package are left out as the library's own, so shops stand for applications. */
class FailureTest {
  private static Throwable thrownAt(String method, Throwable thrown) {
    thrown.setStackTrace(
        new StackTraceElement[] {
          new StackTraceElement("java.util.Objects", "requireNonNull", "Objects.java", 1),
          new StackTraceElement("shop.Stock", method, "Stock.java", 7),
          new StackTraceElement("jdk.internal.reflect.GeneratedMethodAccessor41", "invoke", null, 0),
          new StackTraceElement("shop.Orders", "lambda$new$3", "Orders.java", 9),
        });
    return thrown;
  }

  @Test
  void anExceptionWithACauseHasBoth() {
    Throwable root = new java.net.ConnectException("Connection refused");
    Failure found = Failure.of(new IllegalStateException("no stock", root));
    assertEquals("java.lang.IllegalStateException", found.exception);
    assertEquals("no stock", found.text);
    assertEquals("java.net.ConnectException", found.rootException);
    assertEquals("Connection refused", found.rootText);
  }

  @Test
  void theTraceHasTheFramesOfTheApplicationAndFoldsTheOthers() {
    Throwable root = thrownAt("take", new IllegalStateException("item 7"));
    Throwable thrown = new RuntimeException("no order", root);
    thrown.setStackTrace(
        new StackTraceElement[] {
          new StackTraceElement("shop.Shop", "order", "Shop.java", 3),
          new StackTraceElement("org.springframework.jms.Container", "run", "Container.java", 1),
          new StackTraceElement("java.lang.Thread", "run", "Thread.java", 1),
        });
    assertEquals(
        "java.lang.RuntimeException: no order\n"
            + "\tat shop.Shop.order(Shop.java:3)\n"
            + "\t... 2 frames of Java and frameworks\n"
            + "Caused by: java.lang.IllegalStateException: item 7\n"
            + "\t... 1 frame of Java and frameworks\n"
            + "\tat shop.Stock.take(Stock.java:7)\n"
            + "\t... 1 frame of Java and frameworks\n"
            + "\tat shop.Orders.lambda$new$3(Orders.java:9)",
        Failure.of(thrown).trace);
  }

  @Test
  void aLongTraceEndsAndItsNoteIsNoLargeMessage() {
    char[] letters = new char[70_000];
    java.util.Arrays.fill(letters, 'ä');
    Throwable thrown = thrownAt("take", new IllegalStateException(new String(letters)));
    assertEquals(65_536, Failure.of(thrown).trace.length());
    Delivery delivery = new Delivery("ID:1", 0, "", "");
    String note = CauseNote.json(delivery, Failure.of(thrown), Verdict.NONE, "", "");
    org.junit.jupiter.api.Assertions.assertTrue(note.length() <= 48_000, "of " + note.length());
  }

  @Test
  void wrappersOfFrameworksAreLeftOut() {
    Throwable real = new IllegalStateException("no stock");
    Throwable wrapped = new CompletionException(new InvocationTargetException(real));
    assertEquals("java.lang.IllegalStateException", Failure.of(wrapped).exception);
    assertEquals("", Failure.of(wrapped).rootException);
  }

  @Test
  void aWrapperOfNothingStays() {
    Failure found = Failure.of(new CompletionException(null));
    assertEquals("java.util.concurrent.CompletionException", found.exception);
    assertEquals("", found.text);
  }

  @Test
  void causesInACircleEnd() {
    Exception first = new Exception("first");
    Exception second = new Exception("second", first);
    first.initCause(second);
    assertEquals("first", Failure.of(first).text);
  }

  @Test
  void theHashIsThatOfThePlaceAndTheKind() {
    String hash = Failure.of(thrownAt("take", new IllegalStateException("item 7"))).stackHash;
    assertEquals(12, hash.length());
    assertEquals(hash, Failure.of(thrownAt("take", new IllegalStateException("8"))).stackHash);
    assertNotEquals(hash, Failure.of(thrownAt("give", new IllegalStateException("8"))).stackHash);
    assertNotEquals(hash, Failure.of(thrownAt("take", new RuntimeException("8"))).stackHash);
  }

  @Test
  void theHashKnowsNoGeneratedNames() {
    Throwable one = thrownAt("take", new IllegalStateException());
    StackTraceElement[] other = one.getStackTrace();
    other[2] = new StackTraceElement("jdk.internal.reflect.DirectMethodHandleAccessor", "x", null, 0);
    other[3] = new StackTraceElement("shop.Orders", "lambda$new$12", "Orders.java", 99);
    Throwable two = new IllegalStateException();
    two.setStackTrace(other);
    assertEquals(Failure.of(one).stackHash, Failure.of(two).stackHash);
  }

  @Test
  void theHashIsThatOfTheApplicationWhateverFrameworkCallsIt() {
    Throwable one = thrownAt("take", new IllegalStateException());
    List<StackTraceElement> frames = new ArrayList<>(Arrays.asList(one.getStackTrace()));
    frames.add(0, new StackTraceElement("org.apache.camel.Pipe", "run", "Pipe.java", 1));
    frames.add(new StackTraceElement("org.apache.camel.Route", "run", "Route.java", 1));
    Throwable two = new IllegalStateException();
    two.setStackTrace(frames.toArray(new StackTraceElement[0]));
    assertEquals(Failure.of(one).stackHash, Failure.of(two).stackHash);
    two.setStackTrace(new StackTraceElement[] {frames.get(0)});
    assertEquals(12, Failure.of(two).stackHash.length());
  }

  private static Throwable overflown(int from, String... called) {
    Throwable thrown = new StackOverflowError();
    StackTraceElement[] stack = new StackTraceElement[1024];
    for (int at = 0; at < stack.length; at++) {
      String method = at < from ? "format" : called[(at + from) % called.length];
      stack[at] = new StackTraceElement("shop.Tree", method, "Tree.java", 7 + at % 3);
    }
    thrown.setStackTrace(stack);
    return thrown;
  }

  @Test
  void aRecursionHasOneHashWhereverItOverflows() {
    String hash = Failure.of(overflown(0, "visit", "enter")).stackHash;
    assertEquals(12, hash.length());
    assertEquals(hash, Failure.of(overflown(1, "visit", "enter")).stackHash);
    assertNotEquals(hash, Failure.of(overflown(0, "visit", "leave")).stackHash);
  }

  @Test
  void withoutAStackThereIsNoHash() {
    Throwable bare = new NullPointerException();
    bare.setStackTrace(new StackTraceElement[0]);
    assertEquals("", Failure.of(bare).stackHash);
  }

  @Test
  void aRollbackNamesItsPlace() {
    StackTraceElement[] stack = thrownAt("take", new Exception()).getStackTrace();
    assertEquals("rolled back at shop.Stock.take", Failure.rollback(stack).text);
    assertEquals("", Failure.rollback(stack).exception);
    assertEquals("rolled back", Failure.rollback(new StackTraceElement[0]).text);
  }

  @Test
  void aRollbackByAFrameworkNamesNoPlace() {
    String spring = "org.springframework.jms.support.JmsUtils";
    StackTraceElement[] stack = {
      new StackTraceElement(spring, "rollbackIfNecessary", "JmsUtils.java", 1),
      new StackTraceElement("java.lang.Thread", "run", "Thread.java", 1),
    };
    Failure found = Failure.rollback(stack);
    assertEquals("rolled back", found.text);
    assertEquals("", found.stackHash);
    stack[1] = new StackTraceElement("shop.Orders", "take", "Orders.java", 3);
    assertEquals("rolled back at shop.Orders.take", Failure.rollback(stack).text);
  }
}
