"""The characters of a java.util.regex pattern, one at a time, and the flags in force."""

from enum import IntFlag

from amqsidecar.policy.java_regex.tree import JavaRegexError

QUOTED = "quoted"
END = ""
UNSUPPORTED = "not supported by amqsidecar"
MAX_DEPTH = 60

_SPACE = frozenset(" \t\n\v\f\r")
_LINE_ENDS = frozenset("\n\r\x85\u2028\u2029")


class Flag(IntFlag):
    """The inline flags of Java that change what a pattern means."""

    IGNORE_CASE = 1
    MULTILINE = 2
    DOT_ALL = 4
    UNIX_LINES = 8
    UNICODE_CASE = 16
    COMMENTS = 32
    UNICODE_CLASSES = 64


class PatternReader:
    r"""A cursor over a pattern in which ``\Q...\E`` is already taken apart.

    ``look`` returns the item at the cursor: a character, ``QUOTED`` for a quoted character, which
    is literal, or ``END``; ``literal`` gives the character itself.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.flags = Flag(0)
        self.index = 0
        self.depth = 0
        self._chars: list[str] = []
        self._quoted: list[bool] = []
        self._positions: list[int] = []
        self._split()

    def _split(self) -> None:
        pattern, at, quoting = self.pattern, 0, False
        while at < len(pattern):
            pair = pattern[at : at + 2]
            if pair == (r"\E" if quoting else r"\Q"):
                quoting = not quoting
                at += 2
                continue
            width = 2 if pair[0] == "\\" and not quoting else 1
            for offset, char in enumerate(pair[:width]):
                self._append(char, at + offset, quoted=quoting)
            at += width

    def _append(self, char: str, position: int, *, quoted: bool) -> None:
        if "\ud800" <= char <= "\udfff" or char == "\0":
            name = "a raw NUL" if char == "\0" else "half of a surrogate pair"
            raise JavaRegexError(self.pattern, position, f"{UNSUPPORTED}: {name} in a pattern")
        self._chars.append(char)
        self._quoted.append(quoted)
        self._positions.append(position)

    @property
    def position(self) -> int:
        """The 0-based index of the cursor in the pattern as it was given."""
        return self._positions[self.index] if self.index < len(self._chars) else len(self.pattern)

    def error(self, reason: str, position: int | None = None) -> JavaRegexError:
        """Return the error for something that Java refuses."""
        return JavaRegexError(self.pattern, self.position if position is None else position, reason)

    def unsupported(self, what: str, position: int | None = None) -> JavaRegexError:
        """Return the error for something that Java takes and amqsidecar does not."""
        return self.error(f"{UNSUPPORTED}: {what}", position)

    def has(self, flag: Flag) -> bool:
        """Return whether a flag is in force here."""
        return flag in self.flags

    def look(self, ahead: int = 0) -> str:
        """Return the character at the cursor, or `ahead` characters after it."""
        index = self.index + ahead
        if index >= len(self._chars):
            return END
        return QUOTED if self._quoted[index] else self._chars[index]

    def literal(self) -> str:
        """Return the character at the cursor, quoted or not, and step over it."""
        char = self._chars[self.index]
        self.index += 1
        return char

    def step(self, count: int = 1) -> None:
        """Move the cursor on."""
        self.index += count

    def take(self, expected: str) -> bool:
        """Step over a character if it stands here unquoted."""
        if self.look() != expected:
            return False
        self.index += 1
        return True

    def skip(self) -> None:
        """Step over white space and comments when they are switched on."""
        while self.has(Flag.COMMENTS) and (self.look() in _SPACE or self.look() == "#"):
            if self.take("#"):
                ends = frozenset("\n") if self.has(Flag.UNIX_LINES) else _LINE_ENDS
                while self.look() != END and self._chars[self.index] not in ends:
                    self.index += 1
                if self.look() == QUOTED:
                    raise self.unsupported("a quoted line end in a comment")
            else:
                self.index += 1

    def whole(self, construct: str) -> str:
        r"""Return the character at the cursor, inside a construct that must be written as one.

        Java accepts white space, comments and parts of ``\Q..\E`` inside some constructs only; no
        pattern needs them there, so they are refused.
        """
        char = self.look()
        if char == QUOTED:
            raise self.unsupported(rf"\Q..\E inside {construct}")
        if self.has(Flag.COMMENTS) and (char in _SPACE or char == "#"):
            raise self.unsupported(f"white space or a comment inside {construct}")
        return char

    def run(self, among: frozenset[str], most: int, construct: str) -> str:
        """Return the longest run of these characters at the cursor, and step over it."""
        found = ""
        while len(found) < most and self.look() in among:
            found += self.literal()
        before = self.index
        self.skip()
        if len(found) < most and self.index > before and self.look() in among:
            raise self.unsupported(f"white space or a comment inside {construct}")
        self.index = before
        return found

    def deeper(self) -> None:
        """Count one more level of nesting."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.unsupported(f"nesting deeper than {MAX_DEPTH}")

    def raw_astral_from(self, position: int) -> bool:
        """Return whether a character beyond U+FFFF stands in the pattern, from this index on."""
        return any(char > "\uffff" for char in self.pattern[position:])
