"""The grammar of java.util.regex in Java 17: a pattern in, its tree out."""

from amqsidecar.policy.java_regex.character_class import char_class, escape, literal_set
from amqsidecar.policy.java_regex.chars import EVERYTHING, LINE_ENDS, NEWLINE, CharSet
from amqsidecar.policy.java_regex.reader import END, UNSUPPORTED, Flag, PatternReader
from amqsidecar.policy.java_regex.tree import (
    EMPTY,
    Anchor,
    AnchorAt,
    Atomic,
    BackReference,
    Chars,
    Choice,
    JavaRegexError,
    LineBreak,
    Look,
    Mode,
    Node,
    Parenthesis,
    Repeat,
    Sequence,
)

MAX_REPEAT = 5_000
MAX_PATTERN = 10_000

_DIGITS = frozenset("0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_FLAGS = {
    "i": Flag.IGNORE_CASE,
    "m": Flag.MULTILINE,
    "s": Flag.DOT_ALL,
    "d": Flag.UNIX_LINES,
    "u": Flag.UNICODE_CASE,
    "x": Flag.COMMENTS,
    "U": Flag.UNICODE_CLASSES | Flag.UNICODE_CASE,
}
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_LOOKS = {"=": (False, False), "!": (False, True), "<=": (True, False), "<!": (True, True)}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.reader = PatternReader(pattern)
        self.groups = 0
        self.closed: set[int] = set()
        self.names: dict[str, int] = {}

    def pattern(self) -> Node:
        tree = self.alternatives()
        if self.reader.look() != END:
            raise self.reader.error("a closing parenthesis that was never opened")
        return tree

    def alternatives(self) -> Node:
        branches = [self.sequence()]
        while self.reader.take("|"):
            branches.append(self.sequence())
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def sequence(self) -> Node:
        reader = self.reader
        items: list[Node] = []
        while True:
            reader.skip()
            here = reader.look()
            if here in (END, "|", ")"):
                break
            if here == "(":
                group = self.group()
                if group is not None:
                    items.append(self.quantified(group))
            elif here in _QUANTIFIERS:
                raise reader.error(f"a quantifier {here} with nothing before it")
            elif here == "{":
                # Quirk (Java 17): a brace after a quantifier repeats nothing, without an error.
                self.quantified(EMPTY)
            else:
                items.append(self.quantified(self.atom()))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def quantified(self, node: Node) -> Node:
        reader = self.reader
        reader.skip()
        position = reader.position
        if reader.look() in _QUANTIFIERS:
            least, most = _QUANTIFIERS[reader.literal()]
        elif reader.take("{"):
            least, most = self.counts(position)
        else:
            return node
        reader.skip()
        mode = Mode.GREEDY
        if reader.take("?"):
            mode = Mode.LAZY
        elif reader.take("+"):
            mode = Mode.POSSESSIVE
        return Repeat(node, least, most, mode, position)

    def counts(self, position: int) -> tuple[int, int | None]:
        reader = self.reader
        least = self.count(position)
        most: int | None = least
        if reader.whole("a repetition") == ",":
            reader.step()
            most = None if reader.whole("a repetition") == "}" else self.count(position)
        if reader.whole("a repetition") != "}" or (most is not None and most < least):
            raise reader.error("an illegal repetition range", position)
        reader.step()
        if max(least, most or 0) > MAX_REPEAT:
            raise reader.unsupported(f"more than {MAX_REPEAT} repetitions", position)
        return least, most

    def count(self, position: int) -> int:
        digits = self.reader.run(_DIGITS, MAX_PATTERN, "a repetition")
        if not digits or len(digits.lstrip("0")) > 10 or int(digits) > 0x7FFFFFFF:
            raise self.reader.error("an illegal repetition", position)
        return int(digits)

    def atom(self) -> Node:
        reader = self.reader
        position = reader.position
        here = reader.look()
        if here == "[":
            reader.step()
            return Chars(char_class(reader))
        if here == "\\":
            reader.step()
            return self.escaped(position)
        char = reader.literal()
        match here:
            case "^" | "$":
                return AnchorAt(self.line_anchor(start=here == "^"))
            case ".":
                return Chars(self.dot())
        return Chars(literal_set(reader, ord(char), position))

    def dot(self) -> CharSet:
        if self.reader.has(Flag.DOT_ALL):
            return EVERYTHING
        return ~(NEWLINE if self.reader.has(Flag.UNIX_LINES) else LINE_ENDS)

    def line_anchor(self, *, start: bool) -> Anchor:
        unix = self.reader.has(Flag.UNIX_LINES)
        if self.reader.has(Flag.MULTILINE):
            if start:
                return Anchor.UNIX_LINE_START if unix else Anchor.LINE_START
            return Anchor.UNIX_LINE_END if unix else Anchor.LINE_END
        if start:
            return Anchor.TEXT_START
        return Anchor.UNIX_LAST_LINE_END if unix else Anchor.LAST_LINE_END

    def escaped(self, position: int) -> Node:
        chars = escape(self.reader)
        if isinstance(chars, int):
            return Chars(literal_set(self.reader, chars, position))
        if chars is not None:
            return Chars(chars)
        letter = self.reader.literal()
        match letter:
            case "k":
                return self.named_reference(position)
            case "R":
                return LineBreak()
            case _ if letter in _DIGITS:
                return self.numbered_reference(letter, position)
        return AnchorAt(self.anchor(letter, position))

    def anchor(self, letter: str, position: int) -> Anchor:
        reader = self.reader
        wide = reader.has(Flag.UNICODE_CLASSES)
        match letter:
            case "A" | "G":
                # Why: a fresh matcher, as brokers use it, ended its last match at the start.
                return Anchor.TEXT_START
            case "z":
                return Anchor.TEXT_END
            case "Z":
                unix = reader.has(Flag.UNIX_LINES)
                return Anchor.UNIX_LAST_LINE_END if unix else Anchor.LAST_LINE_END
            case "b":
                if reader.look() == "{" and reader.look(1) == "g":
                    raise reader.unsupported(r"\b{g}", position)
                return Anchor.UNICODE_WORD_EDGE if wide else Anchor.WORD_EDGE
            case "B":
                return Anchor.NO_UNICODE_WORD_EDGE if wide else Anchor.NO_WORD_EDGE
            case "X":
                raise reader.unsupported(r"\X", position)
        raise reader.error(f"no such escape: \\{letter}", position)

    def numbered_reference(self, digit: str, position: int) -> Node:
        reader, number = self.reader, int(digit)
        while reader.look() in _DIGITS and number * 10 + int(reader.look()) <= self.groups:
            number = number * 10 + int(reader.literal())
        before = reader.index
        reader.skip()
        next_digit = reader.look() if reader.index > before else END
        if next_digit in _DIGITS and number * 10 + int(next_digit) <= self.groups:
            raise reader.unsupported("white space or a comment inside a back-reference", position)
        reader.index = before
        return self.reference(number, position)

    def named_reference(self, position: int) -> Node:
        if self.reader.whole(r"\k") != "<":
            raise self.reader.error(r"\k needs the name of a group in <>", position)
        self.reader.step()
        name = self.group_name()
        if name not in self.names:
            raise self.reader.error(f"no group is called {name}", position)
        return self.reference(self.names[name], position)

    def reference(self, number: int, position: int) -> Node:
        ignore_case = self.reader.has(Flag.IGNORE_CASE)
        if ignore_case and self.reader.has(Flag.UNICODE_CASE):
            raise self.reader.unsupported("a back-reference under (?iu)", position)
        return BackReference(number, ignore_case, number not in self.closed, position)

    def group_name(self) -> str:
        reader = self.reader
        if reader.whole("a group name") not in _LETTERS:
            raise reader.error("a group name that does not begin with a letter")
        name = ""
        while reader.whole("a group name") in _LETTERS | _DIGITS:
            name += reader.literal()
        if not reader.take(">"):
            raise reader.error("a group name that is not closed by >")
        return name

    def group(self) -> Node | None:
        """Read a group, or the flags that look like one: they return None and stay in force."""
        reader = self.reader
        position, flags = reader.position, reader.flags
        reader.deeper()
        reader.step()
        reader.skip()
        kind, name = "(", ""
        if reader.take("?"):
            kind = self.group_kind()
            if kind == "<":
                name = self.group_name()
                if name in self.names:
                    raise reader.error(f"a second group called {name}", position)
            elif kind == "flags" and self.switched():
                reader.depth -= 1
                return None
        number = self.open_group(name) if kind in ("(", "<") else None
        body = self.alternatives()
        if not reader.take(")"):
            raise reader.error("the group is not closed", position)
        reader.flags = flags
        reader.depth -= 1
        if number is not None:
            self.closed.add(number)
        if kind in _LOOKS:
            behind, negative = _LOOKS[kind]
            code_points = not behind or reader.raw_astral_from(position)
            return Look(body, behind, negative, position, code_points)
        return Atomic(body) if kind == ">" else Parenthesis(body, number, position)

    def open_group(self, name: str) -> int:
        self.groups += 1
        if name:
            self.names[name] = self.groups
        return self.groups

    def group_kind(self) -> str:
        reader = self.reader
        here = reader.whole("the head of a group")
        if here in (":", "=", "!", ">"):
            reader.step()
            return here
        if here != "<":
            return "flags"
        reader.step()
        here = reader.whole("the head of a group")
        if here in ("=", "!"):
            reader.step()
            return "<" + here
        return "<"

    def switched(self) -> bool:
        """Read flags up to their end; return whether they stand alone, not before a group."""
        reader = self.reader
        removing = False
        while (here := reader.whole("inline flags")) not in (")", ":"):
            if here == "-" and not removing:
                removing = True
            elif here in _FLAGS:
                flag = _FLAGS[here]
                reader.flags = reader.flags & ~flag if removing else reader.flags | flag
            elif here == "c":
                raise reader.unsupported("the flag c (canonical equivalence)")
            else:
                raise reader.error("an unknown inline flag or kind of group")
            reader.step()
        reader.step()
        return here == ")"


def parse(pattern: str) -> Node:
    """Return the tree of a java.util.regex pattern.

    Raises:
        JavaRegexError: Java refuses the pattern, or its meaning is not covered here.
    """
    if len(pattern) > MAX_PATTERN:
        reason = f"{UNSUPPORTED}: a pattern longer than {MAX_PATTERN} characters"
        raise JavaRegexError(pattern, MAX_PATTERN, reason)
    return _Parser(pattern).pattern()
