"""Sets of code points, and the sets that java.util.regex of Java 17 names."""

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files

CODE_POINTS = 0x110000


class CharSet:
    """An immutable set of code points, held as an inversion list.

    ``bounds`` alternates first member and first non-member, ascending.
    """

    __slots__ = ("bounds",)

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> "CharSet":
        """Make the set of these ranges, both ends inclusive, in any order."""
        bounds: list[int] = []
        for first, last in sorted(ranges):
            if bounds and first <= bounds[-1]:
                bounds[-1] = max(bounds[-1], last + 1)
            else:
                bounds += (first, last + 1)
        return cls(tuple(bounds))

    @classmethod
    def chars(cls, members: Iterable[int]) -> "CharSet":
        """Make the set of these code points."""
        return cls.of(*((member, member) for member in members))

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of the set, ascending, both ends inclusive."""
        starts, ends = self.bounds[::2], self.bounds[1::2]
        return [(start, end - 1) for start, end in zip(starts, ends, strict=True)]

    def __contains__(self, code_point: int) -> bool:
        return bisect_right(self.bounds, code_point) % 2 == 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharSet) and self.bounds == other.bounds

    def __hash__(self) -> int:
        return hash(self.bounds)

    def __repr__(self) -> str:
        return f"CharSet({', '.join(f'{a:x}-{b:x}' for a, b in self.ranges())})"

    def __or__(self, other: "CharSet") -> "CharSet":
        return CharSet.of(*self.ranges(), *other.ranges())

    def __invert__(self) -> "CharSet":
        bounds = self.bounds
        bounds = bounds[1:] if bounds[:1] == (0,) else (0, *bounds)
        at_end = bounds[-1:] == (CODE_POINTS,)
        return CharSet(bounds[:-1] if at_end else (*bounds, CODE_POINTS))

    def __and__(self, other: "CharSet") -> "CharSet":
        return ~(~self | ~other)

    def __sub__(self, other: "CharSet") -> "CharSet":
        return ~(~self | other)


NOTHING = CharSet(())
EVERYTHING = CharSet((0, CODE_POINTS))
ASCII = CharSet.of((0, 0x7F))
BMP = CharSet.of((0, 0xFFFF))
LOW_SURROGATES = CharSet.of((0xDC00, 0xDFFF))
NEWLINE = CharSet.of((0x0A, 0x0A))
LINE_ENDS = CharSet.of((0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029))
VERTICAL_SPACE = CharSet.of((0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029))
HORIZONTAL_SPACE = CharSet.of(
    *((9, 9), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E)),
    *((0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
ASCII_DIGITS = CharSet.of((0x30, 0x39))
ASCII_SPACE = CharSet.of((0x09, 0x0D), (0x20, 0x20))
ASCII_UPPER = CharSet.of((0x41, 0x5A))
ASCII_LOWER = CharSet.of((0x61, 0x7A))
ASCII_ALPHA = ASCII_UPPER | ASCII_LOWER
ASCII_ALNUM = ASCII_ALPHA | ASCII_DIGITS
ASCII_WORD = ASCII_ALNUM | CharSet.of((0x5F, 0x5F))

_ASCII_CLASSES = {
    "ASCII": ASCII,
    "Alnum": ASCII_ALNUM,
    "Alpha": ASCII_ALPHA,
    "Blank": CharSet.of((9, 9), (0x20, 0x20)),
    "Cntrl": CharSet.of((0, 0x1F), (0x7F, 0x7F)),
    "Digit": ASCII_DIGITS,
    "Graph": CharSet.of((0x21, 0x7E)),
    "Lower": ASCII_LOWER,
    "Print": CharSet.of((0x20, 0x7E)),
    "Punct": CharSet.of((0x21, 0x7E)) - ASCII_ALNUM,
    "Space": ASCII_SPACE,
    "Upper": ASCII_UPPER,
    "XDigit": CharSet.of((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
    "L1": CharSet.of((0, 0xFF)),
    "all": EVERYTHING,
}


@cache
def flagged(name: str) -> CharSet:
    """Return a set that a method of java.lang.Character tests (``Character.isAlphabetic``)."""
    bounds, code_point = [], 0
    for length in table(name).split():
        code_point += int(length, 16)
        bounds.append(code_point)
    return CharSet(tuple(bounds))


@cache
def _labelled(name: str) -> dict[str, CharSet]:
    found: dict[str, list[tuple[int, int]]] = {}
    code_point = 0
    for run in table(name).split():
        length, label = run.split(":")
        end = code_point + int(length, 16)
        found.setdefault(label, []).append((code_point, end - 1))
        code_point = end
    return {label: CharSet.of(*ranges) for label, ranges in found.items()}


@cache
def category(*names: str) -> CharSet:
    """Return the code points of general categories, by two letters or their common first one."""
    ranges = [
        item
        for label, chars in _labelled("category").items()
        if label in names or label[0] in names
        for item in chars.ranges()
    ]
    return CharSet.of(*ranges)


@cache
def letter_or_digit() -> CharSet:
    """Return the characters that Character.isLetterOrDigit accepts."""
    return category("L", "Nd")


def _white_space() -> CharSet:
    return category("Z") | CharSet.of((9, 0x0D), (0x85, 0x85))


def _hex_digit() -> CharSet:
    full_width = CharSet.of((0xFF10, 0xFF19), (0xFF21, 0xFF26), (0xFF41, 0xFF46))
    return category("Nd") | _ASCII_CLASSES["XDigit"] | full_width


def _blank() -> CharSet:
    return category("Zs") | CharSet.of((9, 9))


def _graph() -> CharSet:
    return ~category("Z", "Cc", "Cs", "Cn")


def _join_control() -> CharSet:
    return CharSet.of((0x200C, 0x200D))


@cache
def unicode_word() -> CharSet:
    r"""Return the characters that ``\w`` accepts under ``(?U)``."""
    return flagged("alphabetic") | category("M", "Nd", "Pc") | _join_control()


def _noncharacter() -> CharSet:
    planes = (((plane << 16) | 0xFFFE, (plane << 16) | 0xFFFF) for plane in range(17))
    return CharSet.of((0xFDD0, 0xFDEF), *planes)


_POSIX: dict[str, Callable[[], CharSet]] = {
    "ALPHA": lambda: flagged("alphabetic"),
    "LOWER": lambda: flagged("lowercase"),
    "UPPER": lambda: flagged("uppercase"),
    "SPACE": _white_space,
    "PUNCT": lambda: category("P"),
    "XDIGIT": _hex_digit,
    "ALNUM": lambda: flagged("alphabetic") | category("Nd"),
    "CNTRL": lambda: category("Cc"),
    "DIGIT": lambda: category("Nd"),
    "BLANK": _blank,
    "GRAPH": _graph,
    "PRINT": lambda: (_graph() | _blank()) - category("Cc"),
}
_UNICODE: dict[str, Callable[[], CharSet]] = {
    "ALPHABETIC": _POSIX["ALPHA"],
    "ASSIGNED": lambda: ~category("Cn"),
    "CONTROL": _POSIX["CNTRL"],
    "HEXDIGIT": _hex_digit,
    "HEX_DIGIT": _hex_digit,
    "IDEOGRAPHIC": lambda: flagged("ideographic"),
    "JOINCONTROL": _join_control,
    "JOIN_CONTROL": _join_control,
    "LETTER": lambda: category("L"),
    "LOWERCASE": _POSIX["LOWER"],
    "NONCHARACTERCODEPOINT": _noncharacter,
    "NONCHARACTER_CODE_POINT": _noncharacter,
    "TITLECASE": lambda: category("Lt"),
    "PUNCTUATION": _POSIX["PUNCT"],
    "UPPERCASE": _POSIX["UPPER"],
    "WHITESPACE": _white_space,
    "WHITE_SPACE": _white_space,
    "WORD": unicode_word,
}
_JAVA: dict[str, Callable[[], CharSet]] = {
    "javaLowerCase": _POSIX["LOWER"],
    "javaUpperCase": _POSIX["UPPER"],
    "javaTitleCase": _UNICODE["TITLECASE"],
    "javaAlphabetic": _POSIX["ALPHA"],
    "javaIdeographic": _UNICODE["IDEOGRAPHIC"],
    "javaDigit": _POSIX["DIGIT"],
    "javaDefined": _UNICODE["ASSIGNED"],
    "javaLetter": _UNICODE["LETTER"],
    "javaLetterOrDigit": letter_or_digit,
    "javaJavaIdentifierStart": lambda: category("L", "Nl", "Sc", "Pc"),
    "javaJavaIdentifierPart": lambda: (
        category("L", "Nl", "Sc", "Pc", "Nd", "Mc", "Mn") | flagged("identifier_ignorable")
    ),
    "javaUnicodeIdentifierStart": lambda: flagged("unicode_identifier_start"),
    "javaUnicodeIdentifierPart": lambda: flagged("unicode_identifier_part"),
    "javaIdentifierIgnorable": lambda: flagged("identifier_ignorable"),
    "javaSpaceChar": lambda: category("Z"),
    "javaWhitespace": lambda: (
        (category("Z") - CharSet.chars((0xA0, 0x2007, 0x202F)))
        | CharSet.of((9, 0x0D), (0x1C, 0x1F))
    ),
    "javaISOControl": lambda: CharSet.of((0, 0x1F), (0x7F, 0x9F)),
    "javaMirrored": lambda: flagged("mirrored"),
}
_ANY_CASE = frozenset(
    (
        "LOWER",
        "UPPER",
        "LOWERCASE",
        "UPPERCASE",
        "TITLECASE",
        "javaLowerCase",
        "javaUpperCase",
        "javaTitleCase",
    )
)


def _any_case() -> CharSet:
    return flagged("lowercase") | flagged("uppercase") | category("Lt")


def _named(
    name: str, known: dict[str, Callable[[], CharSet]], *, ignore_case: bool
) -> CharSet | None:
    if name not in known:
        return None
    return _any_case() if ignore_case and name in _ANY_CASE else known[name]()


def plain_property(name: str, *, ignore_case: bool) -> CharSet | None:
    """Return a category, ASCII class or java* method by its exact name, None when unknown."""
    if ignore_case and name in ("Lu", "Ll", "Lt"):
        return category("Lu", "Ll", "Lt")
    if ignore_case and name in ("Lower", "Upper"):
        return ASCII_ALPHA
    if name in _ASCII_CLASSES:
        return _ASCII_CLASSES[name]
    if name in ("LC", "LD"):
        return category("Lu", "Ll", "Lt") if name == "LC" else letter_or_digit()
    if name in ("L", "M", "N", "Z", "C", "P", "S") or name in _labelled("category"):
        return category(name)
    return _named(name, _JAVA, ignore_case=ignore_case)


def posix_property(name: str, *, ignore_case: bool) -> CharSet | None:
    """Return a POSIX class as ``(?U)`` means it, by name in any case, None when unknown."""
    return _named(name.upper(), _POSIX, ignore_case=ignore_case)


def unicode_property(name: str, *, ignore_case: bool) -> CharSet | None:
    """Return a binary Unicode property by name in any case, None when unknown."""
    found = _named(name.upper(), _UNICODE, ignore_case=ignore_case)
    return found or posix_property(name, ignore_case=ignore_case)


def script(name: str) -> CharSet | None:
    """Return a script by name or ISO 15924 code in any case, None when unknown."""
    aliases = dict(pair.split("=") for pair in table("script_alias").split())
    full = aliases.get(name.upper(), name.upper())
    if full not in aliases.values():
        return None
    return _labelled("script").get(full, NOTHING)


@cache
def _blocks() -> dict[str, CharSet]:
    found = {}
    for line in table("blocks").split(";"):
        bounds, names = line.split(":")
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        found.update(dict.fromkeys(names.split(","), CharSet.of((first, last))))
    return found


def block(name: str) -> CharSet | None:
    """Return a Unicode block by any of its names in any case, None when unknown."""
    return _blocks().get(name.upper())


@cache
def _mapping(name: str) -> dict[int, int]:
    found, code_point = {}, 0
    for entry in table(name).split():
        step, difference = entry.split(":")
        code_point += int(step, 16)
        found[code_point] = code_point + int(difference, 16)
    return found


def to_upper(code_point: int) -> int:
    """Return the result of Character.toUpperCase(int)."""
    return _mapping("upper").get(code_point, code_point)


def to_lower(code_point: int) -> int:
    """Return the result of Character.toLowerCase(int)."""
    return _mapping("lower").get(code_point, code_point)


def fold(code_point: int) -> int:
    """Return the form by which java.util.regex compares under ``(?iu)``."""
    return to_lower(to_upper(code_point))


@cache
def _folded_from() -> dict[int, frozenset[int]]:
    found: dict[int, set[int]] = {}
    for code_point in _mapping("upper").keys() | _mapping("lower").keys():
        found.setdefault(fold(code_point), set()).add(code_point)
    return {folded: frozenset(members) for folded, members in found.items()}


def folding_to(folded: int) -> frozenset[int]:
    """Return the code points that fold to this one, itself included."""
    return _folded_from().get(folded, frozenset()) | {folded}


def ascii_cases(code_point: int) -> tuple[int, ...]:
    """Return an ASCII letter in both cases, anything else alone."""
    if code_point in ASCII_ALPHA:
        return (code_point | 0x20, code_point & ~0x20)
    return (code_point,)


def range_ignoring_case(first: int, last: int, *, unicode_case: bool) -> CharSet:
    """Return a range under ``(?i)``: plus the characters with an upper or folded form in it."""
    base = CharSet.of((first, last))
    if not unicode_case:
        letters = (c for part in (base & ASCII_ALPHA).ranges() for c in range(part[0], part[1] + 1))
        return base | CharSet.chars(case for c in letters for case in ascii_cases(c))
    mapped = _mapping("upper").keys() | _mapping("lower").keys()
    return base | CharSet.chars(c for c in mapped if to_upper(c) in base or fold(c) in base)


@cache
def _tables() -> dict[str, str]:
    packed = files("amqsidecar.policy.java_regex").joinpath("unicode13.zlib").read_bytes()
    return dict(line.split(" ", 1) for line in zlib.decompress(packed).decode().splitlines())


def table(name: str) -> str:
    """Return a table as the oracle printed it (see JavaRegexOracle.java)."""
    return _tables()[name]
