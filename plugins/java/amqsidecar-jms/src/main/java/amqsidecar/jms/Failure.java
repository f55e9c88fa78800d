package amqsidecar.jms;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/** The failure of a delivery, as a note describes it. */
final class Failure {
  /** Wrappers of frameworks around the application's exception. */
  private static final Set<String> WRAPPERS =
      new HashSet<>(
          Arrays.asList(
              "java.lang.reflect.InvocationTargetException",
              "java.lang.reflect.UndeclaredThrowableException",
              "java.util.concurrent.CompletionException",
              "java.util.concurrent.ExecutionException",
              "org.apache.camel.CamelExecutionException",
              "org.apache.camel.RuntimeCamelException",
              "org.springframework.jms.listener.adapter.ListenerExecutionFailedException"));

  /** Beginnings of the names of classes whose frames are folded in a trace. */
  private static final List<String> FRAMEWORKS =
      Arrays.asList(
          "org.springframework.",
          "org.apache.camel.",
          "org.apache.activemq.",
          "org.apache.qpid.",
          "org.messaginghub.",
          "io.micrometer.",
          "io.netty.",
          "io.quarkus.",
          "io.smallrye.",
          "io.vertx.",
          "org.jboss.",
          "weblogic.",
          "com.ibm.");

  private static final int TRACE_MAX = 65_536;
  private static final int CAUSES_MAX = 50;
  private static final int METHODS_MAX = 8;

  private static final int HASH_CHARACTERS = 12;

  /** Class of the exception; "" = a roll-back without one. */
  final String exception;

  final String text;

  /** Of the innermost cause; "" = there is no other. */
  final String rootException;

  final String rootText;

  /** The same for each failure at the same place of the code; "" = it has no stack trace. */
  final String stackHash;

  /** With the frames of frameworks and of Java folded; "" = it has none. */
  final String trace;

  private Failure(
      String exception,
      String text,
      String rootException,
      String rootText,
      String stackHash,
      String trace) {
    this.exception = exception;
    this.text = text;
    this.rootException = rootException;
    this.rootText = rootText;
    this.stackHash = stackHash;
    this.trace = trace;
  }

  /** Returns the failure that an exception is; its frameworks' wrappers are left out. */
  static Failure of(Throwable thrown) {
    Throwable head = unwrapped(thrown);
    Throwable root = root(head);
    boolean isAlone = root == head;
    return new Failure(
        head.getClass().getName(),
        message(head),
        isAlone ? "" : root.getClass().getName(),
        isAlone ? "" : message(root),
        stackHash(root.getClass().getName(), root.getStackTrace()),
        trace(head));
  }

  /**
   * Returns the failure that a roll-back is whose exception the application kept for itself.
   *
   * @param stack of the thread that rolls back
   */
  static Failure rollback(StackTraceElement[] stack) {
    for (StackTraceElement frame : stack) {
      if (isKept(frame) && !isOfFramework(frame)) {
        StringBuilder trace = new StringBuilder("rolled back at ").append(method(frame));
        String text = trace.toString();
        addFrames(trace, stack);
        return new Failure("", text, "", "", stackHash("rollback", stack), trace.toString());
      }
    }
    return new Failure("", "rolled back", "", "", "", "");
  }

  /** Returns the application's exception inside of what a framework threw. */
  static Throwable unwrapped(Throwable thrown) {
    Throwable found = thrown;
    for (int depth = 0; depth < CAUSES_MAX; depth++) {
      Throwable cause = found.getCause();
      if (cause == null || !WRAPPERS.contains(found.getClass().getName())) {
        return found;
      }
      found = cause;
    }
    return found;
  }

  private static Throwable root(Throwable thrown) {
    Throwable found = thrown;
    for (int depth = 0; depth < CAUSES_MAX; depth++) {
      Throwable cause = found.getCause();
      if (cause == null) {
        return found;
      }
      found = cause;
    }
    return found;
  }

  private static String message(Throwable thrown) {
    String message = thrown.getMessage();
    return message == null ? "" : message;
  }

  /** Returns a trace as Java prints it, but for folded frames and frames that a cause repeats. */
  private static String trace(Throwable head) {
    if (head.getStackTrace().length == 0) {
      return "";
    }
    StringBuilder trace = new StringBuilder();
    Throwable found = head;
    for (int depth = 0; found != null && depth < CAUSES_MAX && trace.length() < TRACE_MAX; depth++) {
      trace.append(depth == 0 ? "" : "\nCaused by: ").append(found.getClass().getName());
      String message = message(found);
      trace.append(message.isEmpty() ? "" : ": ").append(message);
      addFrames(trace, found.getStackTrace());
      found = found.getCause();
    }
    return trace.length() > TRACE_MAX ? trace.substring(0, TRACE_MAX) : trace.toString();
  }

  private static void addFrames(StringBuilder trace, StackTraceElement[] stack) {
    int folded = 0;
    for (StackTraceElement frame : stack) {
      if (trace.length() >= TRACE_MAX) {
        return;
      }
      if (isKept(frame) && !isOfFramework(frame)) {
        addFolded(trace, folded);
        folded = 0;
        trace.append("\n\tat ").append(frame.getClassName()).append('.');
        trace.append(frame.getMethodName()).append('(').append(source(frame)).append(')');
      } else {
        folded++;
      }
    }
    addFolded(trace, folded);
  }

  private static void addFolded(StringBuilder trace, int frames) {
    if (frames > 0) {
      trace.append("\n\t... ").append(frames);
      trace.append(frames == 1 ? " frame" : " frames").append(" of Java and frameworks");
    }
  }

  private static String source(StackTraceElement frame) {
    if (frame.getFileName() == null) {
      return "Unknown Source";
    }
    return frame.getFileName() + (frame.getLineNumber() < 0 ? "" : ":" + frame.getLineNumber());
  }

  private static boolean isOfFramework(StackTraceElement frame) {
    return FRAMEWORKS.stream().anyMatch(frame.getClassName()::startsWith);
  }

  /**
   * Returns a hash of the methods that lead to a failure: of the application and its libraries, of
   * frameworks only if there are no others.
   *
   * <p>Lines are left out: a bug keeps its group when another part of its file changes. So is how
   * often a method calls itself.
   */
  private static String stackHash(String kind, StackTraceElement[] stack) {
    MessageDigest digest;
    try {
      digest = MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException missing) {
      return "";
    }
    boolean hasOverflowed = kind.equals("java.lang.StackOverflowError");
    Collection<String> methods =
        methods(stack, frame -> isKept(frame) && !isOfFramework(frame), hasOverflowed);
    if (methods.isEmpty()) {
      methods = methods(stack, Failure::isKept, hasOverflowed);
    }
    if (methods.isEmpty()) {
      return "";
    }
    String text = "\n" + methods.stream().limit(METHODS_MAX).collect(Collectors.joining("\n"));
    StringBuilder hash = new StringBuilder();
    for (byte one : digest.digest((kind + text).getBytes(StandardCharsets.UTF_8))) {
      hash.append(String.format("%02x", one));
    }
    return hash.substring(0, HASH_CHARACTERS);
  }

  /**
   * Returns the methods of a stack, each once, the one that threw first.
   *
   * <p>A stack that has overflowed begins and ends anywhere in a recursion: of it, those that were
   * called again, sorted.
   */
  private static Collection<String> methods(
      StackTraceElement[] stack, Predicate<StackTraceElement> isWanted, boolean hasOverflowed) {
    Map<String, Integer> calls = new LinkedHashMap<>();
    for (StackTraceElement frame : stack) {
      if (isWanted.test(frame)) {
        calls.merge(method(frame), 1, Integer::sum);
      }
    }
    if (hasOverflowed) {
      calls.values().removeIf(count -> count == 1);
      return new TreeSet<>(calls.keySet());
    }
    return calls.keySet();
  }

  private static String method(StackTraceElement frame) {
    return frame.getClassName() + "." + steady(frame.getMethodName());
  }

  /** Returns whether a frame is code that somebody wrote, outside of Java and of this library. */
  private static boolean isKept(StackTraceElement frame) {
    String name = frame.getClassName();
    return !name.startsWith("java.")
        && !name.startsWith("javax.")
        && !name.startsWith("jakarta.")
        && !name.startsWith("jdk.")
        && !name.startsWith("sun.")
        && !name.startsWith("com.sun.")
        && !name.startsWith("amqsidecar.jms.")
        && !name.contains("$$")
        && !name.contains("$Proxy");
  }

  /** Returns a method's name without the number that a compiler gave a lambda. */
  private static String steady(String method) {
    return method.startsWith("lambda$") ? method.replaceAll("\\$\\d+$", "") : method;
  }
}
