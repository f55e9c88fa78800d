package amqsidecar.jms;

/** Writes the few kinds of JSON that a note consists of. */
final class Json {
  private Json() {}

  /**
   * Returns a text as a JSON string of ASCII characters.
   *
   * @param text null = empty
   * @param max characters of the text; the rest is cut
   */
  static String text(String text, int max) {
    String given = text == null ? "" : text;
    int length = Math.min(given.length(), max);
    StringBuilder written = new StringBuilder(length + 2).append('"');
    for (int index = 0; index < length; index++) {
      char one = given.charAt(index);
      if (one == '"' || one == '\\') {
        written.append('\\').append(one);
      } else if (one == '\n' || one == '\t') {
        written.append(one == '\n' ? "\\n" : "\\t");
      } else if (one >= ' ' && one <= '~') {
        written.append(one);
      } else if (isHalf(given, index, length)) {
        written.append('?');
      } else {
        written.append(String.format("\\u%04x", (int) one));
      }
    }
    return written.append('"').toString();
  }

  /** Returns whether a character is a surrogate without its other half before {@code length}. */
  private static boolean isHalf(String text, int index, int length) {
    char one = text.charAt(index);
    if (Character.isHighSurrogate(one)) {
      return index + 1 >= length || !Character.isLowSurrogate(text.charAt(index + 1));
    }
    return Character.isLowSurrogate(one)
        && (index == 0 || !Character.isHighSurrogate(text.charAt(index - 1)));
  }
}
