"""Groups of failures, from the broker's text of why a message died.

Causes are written for people and contain an order's number, a time or a host, so no two are equal.
A group is the rest without these values: the classes of exceptions and the words around them. `*`
stands for each value that was cut: an id, even without a letter, a name between ordinary words, or
a name or a constant of the code after them. Values that only a comparison of several texts shows
are learned (`cause_groups.py`).
"""

import hmac
import re
from codecs import getincrementaldecoder
from functools import lru_cache
from typing import Final
from zlib import crc32

TEXT_MAX: Final = 65_536
"""Characters of a cause that are looked at; a stack trace of 600 frames fits."""

LINE_MAX: Final = 2_000
"""Characters that are looked at of its first line, and of the line of its root cause."""

GROUP_MAX: Final = 200
"""Characters of a group."""

KEPT_BYTES_MAX: Final = 16_384
"""Bytes of a cause, as UTF-8, that are kept of each death."""

ROW_BYTES_MAX: Final = 2_048
"""Bytes of a cause, as UTF-8, that a row of a list shows."""

BLANK: Final = "(blank)"
"""The group of a text of which nothing is left."""

NO_REASON: Final = "(no reason given)"
"""The group of messages that died without a reason, be the broker's text empty or missing."""

_ROOT_MAX = 110
_MARK_BYTES_MAX = 80
_MEMO_TEXTS = 2_048
_MEMO_TEXT_MAX = 1_000
_MASK = bytes.maketrans(b"123456789", b"000000000")

# Why: the classes of Python's `\d`, `\w` and `\s` grow with Unicode, a group must not.
_LETTER = r"A-Za-z\u00c0-\u024f\u0370-\u052f"
_EXCEPTION = rf"(?<![\w$.@/-])(?:[{_LETTER}_$][\w{_LETTER}$]*\.)+[{_LETTER}_$][\w{_LETTER}$]*"
_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAY = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_CALENDAR = rf"(?:(?:{_MONTH}|{_DAY})[a-z]{{0,6}}|{_MONTH.upper()})"
_ZONE = "UTC|GMT|[CEW]ES?T|[ECMP][SD]T|BST|IST|JST|MSK|AE[SD]T|Z|AM|PM|am|pm"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII)


# Blanks and unprintable characters: controls, marks of direction, halves of characters.
_BLANKS = _pattern(
    r"[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]+"
)
# Each of these is linear: it starts at the edge of a word only, and has one way to match.
_QUOTED = _pattern(
    r'"[^"]*+(?:"|$)|“[^”]*+”|‘[^’]*+’|„[^“]*+“|«[^»]*+»|`[^`]*+`'
    r"|(?<!\w)'[^']*+(?:(?<=\w)'(?=\w)[^']*+)*'"
)
_NULL_POINTER = _pattern(r'NullPointerException: Cannot [a-z ]+"')
_GENERATED_CLASS = _pattern(r"\$\$[\w$/]*|(?<=\$Proxy)[0-9]+|(?<=\$Lambda\$)[0-9]+(?:/\w+)?")
_URL = _pattern(r"(?<![\w+.-])[A-Za-z][A-Za-z0-9+.-]*+://[^\s\"'<>()\[\]{}|,;*]*[\w/=-]")
_BROKER_ID = _pattern(r"(?<![\w.])ID:[^\s,;\"'()\[\]{}*]*[\w-]")
_MAIL_OR_HASH = _pattern(
    r"(?<![\w.%+-])[\w.%+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]+)+|(?<=@)[0-9a-f]{1,16}(?!\w)"
)
_PATH = _pattern(
    r"(?<![\w/\\])(?:[A-Za-z]:)?(?:[/\\](?:[\w@%+~$-]++|\.(?=\w))++){2,}[/\\]?(?::[0-9]++)*"
)
_HOST = _pattern(
    r"(?<![\w.-])(?:localhost|[a-z][a-z0-9]*+[.-][a-z0-9.-]*+):[0-9]{2,5}(?!\w)"
    r"|(?<![\w.-])(?:[a-z0-9-]++\.)+(?:com|org|net|local|internal|lan|svc)(?![\w-]|\.\w)"
    r"|(?<![\w./-])(?:[\w.-]*/)?[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]{1,5})?(?!\w|\.\w)"
    r"|\[?(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{1,4}(?![\w:])(?:\](?::[0-9]{1,5})?)?"
)
_UUID = _pattern(r"(?<!\w)[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}(?!\w)")
# A class, which stays whatever digits it has, or a hexadecimal number, or a word with a digit.
_CLASS_OR_NUMBER = _pattern(
    rf"({_EXCEPTION}|(?<![\w$])[A-Z][\w$]*(?:Exception|Error)(?![\w$]))"
    rf"|(?<![{_LETTER}0-9$])(?:[0-9A-Fa-f]{{8,}}(?![{_LETTER}0-9$])"
    rf"|[{_LETTER}$]*+[0-9][{_LETTER}0-9$]*+)"
)
_DATE = _pattern(
    rf"(?<![\w.])(?:{_CALENDAR}[.,]?[ -]){{1,2}}(?=\*)"
    rf"|(?<=\*)(?:[ ,-]{{1,2}}(?:{_MONTH}|{_MONTH.upper()}|{_ZONE})(?!\w)){{1,2}}"
    rf"|(?<=\*)\[[A-Z][a-z]+/[A-Za-z_]+\]"
)
_SIGN = _pattern(r"(?<![\w)\]*])[-+]\*")
_VALUE_LIST = _pattern(r"\*(?:[ ,;:/._+-]*+\*)+")
_LOWER = r"a-z\u00df-\u00f6\u00f8-\u00ff"
_UPPER = r"A-Z\u00c0-\u00d6\u00d8-\u00de"
# A name between two ordinary words, and a name or a constant of the code after two of them.
_NAME = _pattern(rf"(?<![\w.$-])([{_LOWER}]+ )(?!Caused by:)[{_UPPER}][{_LOWER}]+(?= [{_LOWER}])")
_LAST_NAME = _pattern(
    rf"(?<![\w.$-])([{_LETTER}][{_LOWER}]* [{_LOWER}]+ )"
    rf"(?:[{_UPPER}][{_LOWER}]+|(?:[\w$]+\.)*[{_UPPER}][{_UPPER}_]+)$"
)
_CLASS = _pattern(_EXCEPTION)
# The package of a class that begins a text or a cause; a class in the text of an exception is none.
_HEAD = _pattern(
    rf"(?:^|\bCaused by: |\bnested exception is |… )((?:[{_LETTER}_$][\w{_LETTER}$]*\.)+)"
    rf"(?=[{_UPPER}][\w{_LETTER}$]*+(?:[\s:;]|$))"
)
# Where `str.splitlines` ends a line. Linear: blanks that end no line follow one that does.
_LINE_END = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_ROOT = re.compile(rf"(?<=[{_LINE_END}])[^\S{_LINE_END}]*+(?=Caused by:)")


def bounded_cause(text: str, most: int = KEPT_BYTES_MAX) -> str:
    """Return a cause cut to a number of bytes: its head and its root, with a note of the omission.

    A cause that fits is returned unchanged. With `KEPT_BYTES_MAX` a cause of up to `TEXT_MAX`
    characters keeps its group.

    Args:
        text: the broker's words, of any length and from anyone.
        most: bytes as UTF-8; at least 200.
    """
    if len(text) <= most // 4 or _size(text) <= most:
        return text
    room = most - _MARK_BYTES_MAX
    root_at = _root_at(text)
    head = _beginning(text, room)
    root = ""
    if root_at + LINE_MAX > len(head):
        root = _beginning(text[root_at:], room // 2)
        head = _beginning(text[:root_at], room - _size(root))
    left_out = len(text) - len(head) - len(root)
    return f"{head}\n[{left_out} characters are left out here]\n{root}".rstrip("\n")


def _root_at(text: str) -> int:
    """Return where the last line begins that names a root cause; 0 = none is near either end."""
    tail_at = max(0, len(text) - TEXT_MAX)
    for begin in dict.fromkeys((tail_at, 0)):
        found = [one.end() for one in _ROOT.finditer(text[begin : begin + TEXT_MAX])]
        if found:
            return begin + found[-1]
    return 0


def _beginning(text: str, most: int) -> str:
    """Return the beginning of a text, up to a number of bytes."""
    data = text[:most].encode("utf-8", "surrogatepass")[:most]
    # Why not at once: the last character may be cut in two.
    return getincrementaldecoder("utf-8")("surrogatepass").decode(data)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def cause_group(text: str) -> str:
    """Return a cause without its numbers, ids, addresses, times and quoted values.

    Different classes of exceptions never have the same group, up to the longest group. Takes the
    broker's envelope off, and reads the first line and the line of the root cause (`Caused by:`).
    An envelope without an exception (`cause:null`) is `NO_REASON`. At most `GROUP_MAX` characters,
    on one line, never empty; a group's own group is itself.

    Args:
        text: the broker's words, of any length and from anyone.

    Source: ActiveMQ Classic, ActiveMQMessageConsumer.rollback (the envelope).
    """
    if len(text) > _MEMO_TEXT_MAX:
        return _group(text)
    return _known_group(text)


@lru_cache(maxsize=_MEMO_TEXTS)
def _known_group(text: str) -> str:
    masked = text.encode("utf-8", "surrogatepass").translate(_MASK)
    return _group_without_digits(masked) or _group(text)


@lru_cache(maxsize=_MEMO_TEXTS)
def _group_without_digits(masked: bytes) -> str | None:
    """Return the group of all texts that differ from a masked one in their digits only.

    Nothing here distinguishes digits, so they are cut at the same places. None = some stay.
    """
    group = _group(masked.decode("utf-8", "surrogatepass"))
    return None if "0" in group else group


def _group(text: str) -> str:
    group = _step(text[:TEXT_MAX])
    # Ends: each round has fewer characters that are neither blank nor a star, or fewer of all.
    while (shorter := _step(group)) != group:
        group = shorter
    return group or BLANK


def cause_classes(group: str) -> tuple[str, ...]:
    """Return the names of classes in a group, in their order.

    Example:
        >>> cause_classes("a.Outer: x; nested exception is b.Inner: y")
        ('a.Outer', 'b.Inner')
    """
    return tuple(_CLASS.findall(group))


def root_reason(line: str) -> str:
    """Return a cause from its root exception on, without the package; the same without one.

    Example:
        >>> root_reason("a.b.OuterException: x; nested exception is c.d.InnerException: y")
        'InnerException: y'
    """
    found = [one.end() for one in _HEAD.finditer(line)]
    return line[found[-1] :] if found else line


def _step(text: str) -> str:
    return _cut(_essential_line(_unwrap(text)))


def given_reason(text: str | None) -> str:
    """Return the reason in a cause, whole: without the envelope of the broker's client.

    "" = there is no reason; that the redeliveries were used up does not count as one.

    Example:
        >>> given_reason(
        ...     "java.lang.Throwable: Delivery[2] exceeds redelivery policy limit:RedeliveryPolicy "
        ...     "{maximumRedeliveries = 1}, cause:java.io.IOException: no route"
        ... )
        'java.io.IOException: no route'
    """
    text = text or ""
    while True:
        head, limit, rest = text.partition(" redelivery policy limit:")
        if not limit or not head.startswith("java.lang.Throwable: "):
            return text
        text = rest.partition(", cause:")[2]
        if text in ("", "null"):
            return ""


def reason_line(text: str | None) -> str:
    """Return the reason in a cause and its root on one line; "" = there is no reason.

    At most `GROUP_MAX` characters, of which the root gets its part.
    """
    return _shorten(_BLANKS.sub(" ", _essential_line(given_reason(text))).strip())


def _unwrap(text: str) -> str:
    """Return the application's exception in the envelope of the broker's client, else the text."""
    inside = given_reason(text)
    return NO_REASON if text and not inside else inside


def _essential_line(text: str) -> str:
    lines = text.lstrip().splitlines() or [""]
    line = lines[0][:LINE_MAX]
    below = (one.lstrip() for one in reversed(lines[1:]))
    root = next((one for one in below if one.startswith("Caused by:")), None)
    return line if root is None else f"{line} {root[:LINE_MAX]}"


@lru_cache(maxsize=_MEMO_TEXTS)
def _cut(line: str) -> str:
    line = _BLANKS.sub(" ", line)
    if not _NULL_POINTER.search(line):  # The JVM quotes code there, no values.
        line = _QUOTED.sub("*", line)
    line = _GENERATED_CLASS.sub("", line)
    if "://" in line:
        line = _URL.sub("*", line)
    if "ID:" in line:
        line = _BROKER_ID.sub("*", line)
    if "@" in line:
        line = _MAIL_OR_HASH.sub("*", line)
    if "/" in line or "\\" in line:
        line = _PATH.sub("*", line)
    line = _HOST.sub("*", line)
    line = _UUID.sub("*", line)
    line = _CLASS_OR_NUMBER.sub(lambda found: found[1] or "*", line)
    if "*" in line:
        line = _VALUE_LIST.sub("*", line)
        line = _DATE.sub("", line)
        line = _SIGN.sub("*", line)
        line = _VALUE_LIST.sub("*", line)
    line = _LAST_NAME.sub(r"\1*", _NAME.sub(r"\1*", line.strip()))
    return _shorten(line)


def _shorten(line: str) -> str:
    """Return at most `GROUP_MAX` characters: the beginning, and the last class with its words."""
    if len(line) <= GROUP_MAX:
        return line
    classes = [found.start(1) for found in _HEAD.finditer(line)]
    if len(classes) < 2:
        classes = [found.start() for found in _CLASS.finditer(line)]
    root = line[classes[-1] :][:_ROOT_MAX].rstrip() if len(classes) > 1 else ""
    head = line[: GROUP_MAX - len(root) - 3].rstrip()
    return f"{head} … {root}" if root else line[:GROUP_MAX].rstrip()


def group_number(key: bytes, destination: str, group: str) -> int:
    """Return a number of six digits at most for a group; the same for ever in one schedule.

    Two groups hardly ever have the same one; callers that take a number must check for that.

    Args:
        key: of the schedule; who does not know it can't check a guess of a masked group.
        group: its cause group.
    """
    text = f"{destination}\n{group}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hmac.digest(key, text, "sha256")[:8]) % 1_000_000


def former_group_number(destination: str, group: str) -> int:
    """Return the number that `group_number` made before schedules had keys; commands take it."""
    return crc32(f"{destination}\n{group}".encode("utf-8", "surrogatepass")) % 1_000_000
