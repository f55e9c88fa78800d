package amqsidecar.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class JsonTest {
  @ParameterizedTest
  @CsvSource(
      quoteCharacter = '|',
      value = {
        "no stock, |\"no stock\"|",
        "|say \"no\"|, |\"say \\\"no\\\"\"|",
        "back\\slash, |\"back\\\\slash\"|",
        "Straße, |\"Stra\\u00dfe\"|",
        "\uD83D\uDE00, |\"\\ud83d\\ude00\"|",
        "\uD83D alone, |\"? alone\"|",
        "alone \uDE00, |\"alone ?\"|",
        "longer than twelve, |\"longer than \"|",
        "cut in half\uD83D\uDE00, |\"cut in half?\"|",
      })
  void aTextIsWrittenAsAscii(String text, String written) {
    assertEquals(written, Json.text(text, 12));
  }

  @Test
  void controlCharactersAndNothing() {
    assertEquals("\"a\\nb\\t\\u0000\"", Json.text("a\nb\t\0", 12));
    assertEquals("\"\"", Json.text(null, 12));
  }
}
