package amqsidecar.jms;

import java.time.Duration;

/**
 * What a consumer advises about a message that it failed on.
 *
 * <p>The sidecar obeys it where {@code policy.verdicts} is {@code obey}, and within its rules.
 */
public final class Verdict {
  /** No advice: the rules decide. */
  public static final Verdict NONE = new Verdict("");

  private static final Duration LONGEST = Duration.ofDays(30);

  private final String json;

  private Verdict(String json) {
    this.json = json;
  }

  /**
   * Redeliver after this time, not earlier.
   *
   * @param delay 0 to 30 days; a longer one is cut, a negative one is 0
   */
  public static Verdict retryAfter(Duration delay) {
    Duration bounded = delay.isNegative() ? Duration.ZERO : delay;
    bounded = bounded.compareTo(LONGEST) > 0 ? LONGEST : bounded;
    return new Verdict("{\"action\":\"retry_after\",\"delay_ms\":" + bounded.toMillis() + "}");
  }

  /** Redeliver no more. */
  public static Verdict never() {
    return new Verdict("{\"action\":\"never\"}");
  }

  /**
   * Send it to another destination.
   *
   * @param destination such as {@code queue://repair}; at most 1,024 characters
   */
  public static Verdict redirect(String destination) {
    return new Verdict(
        "{\"action\":\"redirect\",\"destination\":" + Json.text(destination, 1_024) + "}");
  }

  /** Returns its JSON object; "" = no advice. */
  String json() {
    return json;
  }
}
