"""Characters of a java.util.regex pattern: escapes, properties, and classes with set operations."""

from collections.abc import Callable

from amqsidecar.policy.java_regex import chars as java_chars
from amqsidecar.policy.java_regex.chars import CharSet
from amqsidecar.policy.java_regex.reader import END, QUOTED, Flag, PatternReader

_SIMPLE = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_HEX = frozenset("0123456789abcdefABCDEF")
_OCTAL = frozenset("01234567")
_SETS = frozenset("dDhHsSvVwW")
_FOLDS_BEYOND_LATIN_1 = frozenset((0xFF, 0xB5, 0x49, 0x69, 0x53, 0x73, 0x4B, 0x6B, 0xC5, 0xE5))


def literal_set(reader: PatternReader, code_point: int, position: int) -> CharSet:
    """Return the characters that a literal outside a class matches under the flags in force."""
    if not reader.has(Flag.IGNORE_CASE):
        return CharSet.chars((code_point,))
    if not reader.has(Flag.UNICODE_CASE):
        return CharSet.chars(java_chars.ascii_cases(code_point))
    alone = _folded_alone(code_point)
    in_a_run = CharSet.chars(java_chars.folding_to(java_chars.fold(code_point)))
    if alone != in_a_run:
        # Quirk (Java 17): such a letter means one thing alone and another beside other letters.
        raise reader.unsupported("(?iu) on a letter with several cases", position)
    return alone


def _folded_alone(code_point: int) -> CharSet:
    upper = java_chars.to_upper(code_point)
    lower = java_chars.to_lower(upper)
    members = java_chars.folding_to(lower) if upper != lower else {code_point}
    return CharSet.chars(members)


def _member_set(reader: PatternReader, code_point: int) -> CharSet:
    if not reader.has(Flag.IGNORE_CASE):
        return CharSet.chars((code_point,))
    if not reader.has(Flag.UNICODE_CASE):
        return CharSet.chars(java_chars.ascii_cases(code_point))
    if code_point > 0xFF or code_point in _FOLDS_BEYOND_LATIN_1:
        return _folded_alone(code_point)
    cases = (code_point, java_chars.to_upper(code_point), java_chars.to_lower(code_point))
    return CharSet.chars(cases)


def predefined(reader: PatternReader, letter: str) -> CharSet:
    r"""Return the set of ``\d \h \s \v \w`` or of its capital under the flags in force."""
    wide = reader.has(Flag.UNICODE_CLASSES)
    match letter.lower():
        case "d":
            chars = java_chars.category("Nd") if wide else java_chars.ASCII_DIGITS
        case "s":
            white = java_chars.unicode_property("WHITE_SPACE", ignore_case=False)
            chars = white if wide and white else java_chars.ASCII_SPACE
        case "w":
            chars = java_chars.unicode_word() if wide else java_chars.ASCII_WORD
        case "h":
            chars = java_chars.HORIZONTAL_SPACE
        case _:
            chars = java_chars.VERTICAL_SPACE
    return ~chars if letter.isupper() else chars


def escape(reader: PatternReader, *, vertical_tab: bool = False) -> int | CharSet | None:
    r"""Read an escape that stands for characters, with the cursor after the backslash.

    Args:
        reader: The cursor; not moved when None is returned.
        vertical_tab: Whether ``\v`` is the one character, as at the end of a range.

    Returns:
        A code point, a set, or None when this is no escape for characters.
    """
    letter = reader.look()
    if letter == END:
        raise reader.error("a backslash with nothing after it")
    start = reader.position - 1
    if letter.isascii() and letter.isalnum() and letter not in _KNOWN:
        return None
    reader.step()
    if vertical_tab and letter == "v":
        return 0x0B
    if letter in _SETS:
        return predefined(reader, letter)
    if letter in ("p", "P"):
        chars = _property(reader, start)
        return ~chars if letter == "P" else chars
    code_point = _NUMBERS[letter](reader) if letter in _NUMBERS else _SIMPLE.get(letter)
    if code_point is not None and 0xD800 <= code_point <= 0xDFFF:
        raise reader.unsupported("half of a surrogate pair in a pattern", start)
    return ord(letter) if code_point is None else code_point


def _octal(reader: PatternReader) -> int:
    digits = reader.run(_OCTAL, 1, r"\0")
    digits += reader.run(_OCTAL, 2 if digits <= "3" else 1, r"\0")
    if not digits:
        raise reader.error(r"\0 without an octal number")
    return int(digits, 8)


def _hexadecimal(reader: PatternReader) -> int:
    if reader.whole(r"\x") == "{":
        reader.step()
        digits = reader.run(_HEX, len(reader.pattern), r"\x")
        if not digits or int(digits, 16) > 0x10FFFF:
            raise reader.error(r"\x{...} without the number of a character")
        if not reader.take("}"):
            raise reader.error(r"\x{...} is not closed")
        return int(digits, 16)
    return _exactly(reader, 2, r"\x")


def _exactly(reader: PatternReader, count: int, construct: str) -> int:
    digits = reader.run(_HEX, count, construct)
    if len(digits) < count:
        raise reader.error(f"{construct} needs {count} hexadecimal digits")
    return int(digits, 16)


def _utf_16(reader: PatternReader) -> int:
    unit = _exactly(reader, 4, r"\u")
    if 0xD800 <= unit <= 0xDBFF and (reader.look(), reader.look(1)) == ("\\", "u"):
        reader.step(2)
        low = _exactly(reader, 4, r"\u")
        if not 0xDC00 <= low <= 0xDFFF:
            raise reader.unsupported("half of a surrogate pair in a pattern")
        return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
    return unit


def _control(reader: PatternReader) -> int:
    if reader.whole(r"\c") == END:
        raise reader.error(r"\c with nothing after it")
    return ord(reader.literal()) ^ 64


def _by_name(reader: PatternReader) -> int:
    raise reader.unsupported(r"\N{name}")


_NUMBERS: dict[str, Callable[[PatternReader], int]] = {
    "0": _octal,
    "x": _hexadecimal,
    "u": _utf_16,
    "c": _control,
    "N": _by_name,
}
_KNOWN = frozenset((*_SIMPLE, *_SETS, *_NUMBERS, "p", "P"))


def _property(reader: PatternReader, start: int) -> CharSet:
    construct = r"\p"
    if reader.whole(construct) == END:
        raise reader.error(r"\p with nothing after it")
    name = reader.literal()
    if name == "{":
        name = ""
        while reader.whole(construct) not in (END, "}"):
            name += reader.literal()
        if not reader.take("}"):
            raise reader.error(r"\p{...} is not closed", start)
    chars = _property_set(reader, name) if name.isascii() else None
    if chars is None:
        raise reader.error(f"unknown character property {name!r}", start)
    return chars


def _property_set(reader: PatternReader, name: str) -> CharSet | None:
    ignore_case = reader.has(Flag.IGNORE_CASE)
    key, equals, value = name.partition("=")
    if equals:
        key = key.lower()
        if key in ("sc", "script"):
            return java_chars.script(value)
        if key in ("blk", "block"):
            return java_chars.block(value)
        is_category = key in ("gc", "general_category")
        return java_chars.plain_property(value, ignore_case=ignore_case) if is_category else None
    if name.startswith("In"):
        return java_chars.block(name[2:])
    if name.startswith("Is"):
        return (
            java_chars.unicode_property(name[2:], ignore_case=ignore_case)
            or java_chars.plain_property(name[2:], ignore_case=ignore_case)
            or java_chars.script(name[2:])
        )
    wide = reader.has(Flag.UNICODE_CLASSES)
    posix = java_chars.posix_property(name, ignore_case=ignore_case) if wide else None
    return posix or java_chars.plain_property(name, ignore_case=ignore_case)


def char_class(reader: PatternReader) -> CharSet:
    """Read a class, with the cursor after its opening bracket, and step over its closing one."""
    start = reader.position - 1
    reader.deeper()
    negated = reader.take("^")
    chars = _class_body(reader, start)
    reader.step()
    reader.depth -= 1
    return ~chars if negated else chars


def _class_body(reader: PatternReader, start: int) -> CharSet:
    """Read up to the closing bracket, and leave the cursor on it."""
    found: CharSet | None = None
    while True:
        reader.skip()
        here = reader.look()
        if here == END:
            raise reader.error("the character class is not closed", start)
        if here == "]" and found is not None:
            return found
        if here == "[":
            reader.step()
            item = char_class(reader)
        elif here == "&" and _and_follows(reader):
            operand = _operand(reader, start)
            found = operand if found is None else found & operand
            continue
        else:
            item = _member(reader)
        found = item if found is None else found | item


def _and_follows(reader: PatternReader) -> bool:
    if reader.look(1) == "&":
        return True
    before = reader.index
    reader.step()
    reader.skip()
    apart = reader.look() == "&" and reader.index > before + 1
    reader.index = before
    if apart:
        raise reader.unsupported("white space or a comment inside &&")
    return False


def _operand(reader: PatternReader, start: int) -> CharSet:
    """Read the operand of ``&&``: classes in brackets, then perhaps the rest without brackets."""
    position = reader.position
    reader.step(2)
    found: CharSet | None = None
    while True:
        reader.skip()
        here = reader.look()
        if here in ("]", "&"):
            break
        if here == "[":
            reader.step()
            item = char_class(reader)
        else:
            reader.deeper()
            item = _class_body(reader, start)
            reader.depth -= 1
        found = item if found is None else found | item
    if found is None:
        raise reader.unsupported("&& in a class with nothing on its right", position)
    if here == "&" and not _and_follows(reader):
        # Quirk (Java 17): a single & here also changes the operand left of the && before it.
        raise reader.unsupported("a single & after && in a class")
    return found


def _member(reader: PatternReader) -> CharSet:
    """Read one character, escape, property or range of a class."""
    first = _class_char(reader, before_dash=True)
    if isinstance(first, CharSet):
        return first
    reader.skip()
    if reader.look() != "-" or reader.look(1) in ("[", "]"):
        return _member_set(reader, first)
    position = reader.position
    reader.step()
    if reader.has(Flag.COMMENTS) and reader.look() != QUOTED:
        reader.whole("a range of a class")
    last = _class_char(reader, before_dash=False)
    if isinstance(last, CharSet) or last < first:
        raise reader.error("the range of the class runs backwards", position)
    if not reader.has(Flag.IGNORE_CASE):
        return CharSet.of((first, last))
    unicode_case = reader.has(Flag.UNICODE_CASE)
    return java_chars.range_ignoring_case(first, last, unicode_case=unicode_case)


def _class_char(reader: PatternReader, *, before_dash: bool) -> int | CharSet:
    position = reader.position
    if reader.look() == END:
        raise reader.error("the character class is not closed")
    if reader.look() != "\\":
        return ord(reader.literal())
    reader.step()
    vertical_tab = reader.look(1) == "-" if before_dash else True
    chars = escape(reader, vertical_tab=vertical_tab)
    if chars is None:
        raise reader.error(f"no such escape in a class: \\{reader.look()}", position)
    return chars
