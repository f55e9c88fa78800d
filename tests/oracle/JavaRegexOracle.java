import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.IntPredicate;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/**
 * Answers with java.util.regex itself.
 *
 * No argument: reads lines of UTF-8 hexadecimal from standard input: "I hex" adds an input text,
 * "P hex" asks for a pattern. One line per pattern: "invalid INDEX REASON", or one digit per input
 * (1 match, 0 none, S stack overflow, T gave up after a number of characters read, X other).
 *
 * "unicode": prints the character tables of this Java (see amqsidecar/policy/java_regex/unicode13.zlib).
 */
public final class JavaRegexOracle {
    private static final long MAX_READS = 20_000_000L;

    private static final class GaveUp extends RuntimeException {
        private static final long serialVersionUID = 1L;
    }

    /** A text that counts how often it is read, so that no pattern can hang the oracle. */
    private static final class Counted implements CharSequence {
        private final String text;
        private long reads;

        Counted(String text) {
            this.text = text;
        }

        public int length() {
            return text.length();
        }

        public char charAt(int index) {
            if (++reads > MAX_READS) {
                throw new GaveUp();
            }
            return text.charAt(index);
        }

        public CharSequence subSequence(int start, int end) {
            return text.subSequence(start, end);
        }

        @Override
        public String toString() {
            return text;
        }
    }

    private static String unhex(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static char verdict(Pattern pattern, String text) {
        try {
            return pattern.matcher(new Counted(text)).matches() ? '1' : '0';
        } catch (GaveUp e) {
            return 'T';
        } catch (StackOverflowError e) {
            return 'S';
        } catch (RuntimeException e) {
            return 'X';
        }
    }

    private static void answer(PrintStream out) throws Exception {
        List<String> inputs = new ArrayList<>();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String text = unhex(line.substring(2));
            if (line.charAt(0) == 'I') {
                inputs.add(text);
                continue;
            }
            try {
                Pattern pattern = Pattern.compile(text);
                StringBuilder row = new StringBuilder();
                for (String input : inputs) {
                    row.append(verdict(pattern, input));
                }
                out.println(row);
            } catch (PatternSyntaxException e) {
                out.println("invalid " + e.getIndex() + " " + e.getDescription().replace('\n', ' '));
            } catch (RuntimeException | StackOverflowError e) {
                out.println("invalid -1 " + e.getClass().getSimpleName());
            }
            out.flush();
        }
    }

    private static void runs(PrintStream out, String name, IntPredicate member) {
        StringBuilder row = new StringBuilder(name);
        boolean current = false;
        int start = 0;
        for (int c = 0; c <= 0x110000; c++) {
            boolean now = c < 0x110000 && member.test(c);
            if (now != current) {
                row.append(' ').append(Integer.toHexString(c - start));
                current = now;
                start = c;
            }
        }
        out.println(row);
    }

    private interface Label {
        String of(int codePoint);
    }

    private static void labels(PrintStream out, String name, Label label) {
        StringBuilder row = new StringBuilder(name);
        int start = 0;
        for (int c = 1; c <= 0x110000; c++) {
            if (c == 0x110000 || !label.of(c).equals(label.of(start))) {
                row.append(' ').append(Integer.toHexString(c - start));
                row.append(':').append(label.of(start));
                start = c;
            }
        }
        out.println(row);
    }

    private static void mapping(PrintStream out, String name, java.util.function.IntUnaryOperator to) {
        StringBuilder row = new StringBuilder(name);
        int previous = 0;
        for (int c = 0; c < 0x110000; c++) {
            int other = to.applyAsInt(c);
            if (other != c) {
                row.append(' ').append(Integer.toHexString(c - previous));
                row.append(':').append(Integer.toString(other - c, 16));
                previous = c;
            }
        }
        out.println(row);
    }

    private static String category(int c) {
        String[] names = {
            "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Me", "Mc", "Nd", "Nl", "No", "Zs", "Zl",
            "Zp", "Cc", "Cf", "", "Co", "Cs", "Pd", "Ps", "Pe", "Pc", "Po", "Sm", "Sc", "Sk", "So",
            "Pi", "Pf"};
        return names[Character.getType(c)];
    }

    /** The names that forName() knows: they are nowhere public, so the private map is read. */
    private static Map<?, ?> names(Class<?> type, String field) throws Exception {
        Field map = type.getDeclaredField(field);
        map.setAccessible(true);
        return (Map<?, ?>) map.get(null);
    }

    private static void unicode(PrintStream out) throws Exception {
        labels(out, "category", JavaRegexOracle::category);
        labels(out, "script", c -> Character.UnicodeScript.of(c).name());
        runs(out, "alphabetic", Character::isAlphabetic);
        runs(out, "lowercase", Character::isLowerCase);
        runs(out, "uppercase", Character::isUpperCase);
        runs(out, "ideographic", Character::isIdeographic);
        runs(out, "mirrored", Character::isMirrored);
        runs(out, "identifier_ignorable", Character::isIdentifierIgnorable);
        runs(out, "unicode_identifier_start", Character::isUnicodeIdentifierStart);
        runs(out, "unicode_identifier_part", Character::isUnicodeIdentifierPart);
        mapping(out, "upper", Character::toUpperCase);
        mapping(out, "lower", Character::toLowerCase);
        Map<String, String> aliases = new TreeMap<>();
        names(Character.UnicodeScript.class, "aliases").forEach(
            (alias, script) -> aliases.put(alias.toString(), script.toString()));
        out.println("script_alias " + String.join(" ", aliases.entrySet().stream()
            .map(e -> e.getKey() + "=" + e.getValue()).toList()));
        Map<Object, List<String>> blocks = new java.util.HashMap<>();
        names(Character.UnicodeBlock.class, "map").forEach(
            (name, block) -> blocks.computeIfAbsent(block, b -> new ArrayList<>())
                .add(name.toString()));
        List<String> entries = new ArrayList<>();
        for (int c = 0, start = 0; c <= 0x110000; c++) {
            Object block = Character.UnicodeBlock.of(start);
            if (c == 0x110000 || Character.UnicodeBlock.of(c) != block) {
                if (block != null) {
                    List<String> known = blocks.get(block);
                    known.sort(null);
                    entries.add(Integer.toHexString(start) + "-" + Integer.toHexString(c - 1)
                        + ":" + String.join(",", known));
                }
                start = c;
            }
        }
        out.println("blocks " + String.join(";", entries));
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        if (arguments.length == 1 && arguments[0].equals("unicode")) {
            unicode(out);
        } else {
            answer(out);
        }
        out.flush();
    }
}
