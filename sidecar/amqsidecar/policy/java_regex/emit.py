"""A pattern's tree, written for the `regex` package with nothing left to its own defaults.

Every set is spelled out as ranges, case is folded into the sets, and flags are gone, so that the
engine has no opinion about Unicode, case or line ends that could differ from Java's.
"""

from functools import cache

from amqsidecar.policy.java_regex import chars as java_chars
from amqsidecar.policy.java_regex.chars import ASCII, BMP, EVERYTHING, LINE_ENDS, NOTHING, CharSet
from amqsidecar.policy.java_regex.limits import in_code_units
from amqsidecar.policy.java_regex.tree import (
    EMPTY,
    Anchor,
    AnchorAt,
    Atomic,
    BackReference,
    Chars,
    Choice,
    LineBreak,
    Look,
    Mode,
    Node,
    Parenthesis,
    Repeat,
    Sequence,
    is_loop,
    is_optional_group,
    longest,
    walk,
)

NEVER = "(?!)"
_SUFFIX = {Mode.GREEDY: "", Mode.LAZY: "?", Mode.POSSESSIVE: ""}
_AT_END = frozenset(
    (
        Anchor.TEXT_END,
        Anchor.LAST_LINE_END,
        Anchor.UNIX_LAST_LINE_END,
        Anchor.LINE_END,
        Anchor.UNIX_LINE_END,
    )
)


def without_outer_anchors(tree: Node) -> Node:
    """Drop the anchors at both ends that a match of the whole text satisfies anyway."""
    items = list(tree.items) if isinstance(tree, Sequence) else [tree]
    while items and items[0] == AnchorAt(Anchor.TEXT_START):
        items.pop(0)
    while items:
        last = items[-1]
        if not (isinstance(last, AnchorAt) and last.anchor in _AT_END):
            break
        items.pop()
    return items[0] if len(items) == 1 else Sequence(tuple(items))


def literal(tree: Node) -> str | None:
    """Return the one text that a tree matches, None when it is not a plain literal."""
    items = tree.items if isinstance(tree, Sequence) else (tree,)
    text = ""
    for item in items:
        if not isinstance(item, Chars) or len(item.chars.bounds) != 2:
            return None
        first, end = item.chars.bounds
        if end != first + 1:
            return None
        text += chr(first)
    return text


def _escaped(code_point: int) -> str:
    char = chr(code_point)
    if char.isascii() and (char.isalnum() or char in "_ "):
        return char
    if code_point <= 0xFF:
        return f"\\x{code_point:02x}"
    return f"\\u{code_point:04x}" if code_point <= 0xFFFF else f"\\U{code_point:08x}"


@cache
def _class(chars: CharSet, within: CharSet) -> str:
    inside, outside = chars & within, within - chars
    if inside == NOTHING:
        return NEVER
    if outside == NOTHING:
        return "."
    if inside.bounds[0] + 1 == inside.bounds[-1]:
        return _escaped(inside.bounds[0])
    negated = len(outside.bounds) < len(inside.bounds)
    body = "".join(
        _escaped(first) if first == last else f"{_escaped(first)}-{_escaped(last)}"
        for first, last in (outside if negated else inside).ranges()
    )
    return f"[^{body}]" if negated else f"[{body}]"


class _Emitter:
    def __init__(self, referenced: frozenset[int], *, ascii_only: bool) -> None:
        self.referenced = referenced
        self.ascii_only = ascii_only
        self.within = ASCII if ascii_only else EVERYTHING

    def chars(self, chars: CharSet) -> str:
        return _class(chars, self.within)

    def source(self, node: Node) -> str:  # noqa: PLR0911 - one for each kind
        match node:
            case Chars(chars):
                return self.chars(chars)
            case AnchorAt(anchor):
                return self.anchor(anchor)
            case LineBreak():
                return rf"(?:\r\n|{self.chars(java_chars.VERTICAL_SPACE)})"
            case BackReference():
                return self.back_reference(node)
            case Sequence(items):
                return "".join(self.source(item) for item in items)
            case Choice(branches):
                return f"(?:{'|'.join(self.source(branch) for branch in branches)})"
            case Parenthesis():
                return self.group(node)
            case Atomic(body):
                return f"(?>{self.source(body)})"
            case Look():
                return self.look(node)
            case Repeat():
                return self.repeat(node)

    def back_reference(self, node: BackReference) -> str:
        if node.early:
            return NEVER
        reference = f"(?P=g{node.group})"
        return f"(?i:{reference})" if node.ignore_case else reference

    def group(self, node: Parenthesis) -> str:
        body = self.source(node.body)
        return f"(?P<g{node.number}>{body})" if node.number in self.referenced else f"(?:{body})"

    def look(self, node: Look) -> str:
        body = node.body
        if not node.code_points:
            # Invariant: the limits were checked, so there is a view in code units.
            body = in_code_units(body) or EMPTY
        head = f"(?{'<' if node.behind else ''}{'!' if node.negative else '='}"
        return f"{head}{self.source(body)})"

    def repeat(self, node: Repeat) -> str:
        if self.takes_nothing(node.body):
            return "" if node.least == 0 else self.source(node.body)
        body = self.repeated_body(node)
        if node.mode is Mode.POSSESSIVE:
            return f"(?>{body}{_counts(node)})"
        return body + _counts(node) + _SUFFIX[node.mode]

    def takes_nothing(self, body: Node) -> bool:
        captures = any(
            isinstance(part, Parenthesis) and part.number in self.referenced for part in walk(body)
        )
        return longest(body) == 0 and not captures

    def repeated_body(self, node: Repeat) -> str:
        body = self.source(node.body)
        if isinstance(node.body, Chars) and body != NEVER:
            return body
        # Why: Java commits to each turn of a possessive or simple repetition; only what it calls
        # non-deterministic is entered again, and only a line break shows the difference else.
        has_line_break = any(isinstance(part, LineBreak) for part in walk(node.body))
        backtracks = is_loop(node) or is_optional_group(node)
        if node.mode is Mode.POSSESSIVE or (has_line_break and not backtracks):
            inner = node.body.number if isinstance(node.body, Parenthesis) else None
            if inner not in self.referenced or node.mode is Mode.POSSESSIVE:
                return f"(?>{body})"
        return f"(?:{body})"

    def anchor(self, anchor: Anchor) -> str:  # noqa: PLR0911 - one for each kind
        match anchor:
            case Anchor.TEXT_START:
                return r"\A"
            case Anchor.TEXT_END:
                return r"\Z"
            case Anchor.UNIX_LINE_START:
                return r"(?!\Z)(?:\A|(?<=\n))"
            case Anchor.UNIX_LAST_LINE_END:
                return r"(?=\n?\Z)"
            case Anchor.UNIX_LINE_END:
                return r"(?=\n|\Z)"
        single = self.chars(LINE_ENDS - java_chars.NEWLINE)
        match anchor:
            case Anchor.LINE_START:
                ends = self.chars(LINE_ENDS - CharSet.chars((0x0D,)))
                return rf"(?!\Z)(?:\A|(?<={ends})|(?<=\r)(?!\n))"
            case Anchor.LAST_LINE_END:
                return rf"(?:\Z|(?=\r\n\Z|{single}\Z)|(?<!\r)(?=\n\Z))"
            case Anchor.LINE_END:
                return rf"(?:\Z|(?={single})|(?<!\r)(?=\n))"
        return self.word_edge(anchor)

    def word_edge(self, anchor: Anchor) -> str:
        wide = anchor in (Anchor.UNICODE_WORD_EDGE, Anchor.NO_UNICODE_WORD_EDGE)
        negative = anchor in (Anchor.NO_WORD_EDGE, Anchor.NO_UNICODE_WORD_EDGE)
        if self.ascii_only:
            return r"\B" if negative else r"\b"
        # Quirk (Java 17): a non-spacing mark belongs to a word when a letter or digit of the BMP
        # stands before it, looked for by UTF-16 units; the underscore is no such base.
        letters = java_chars.letter_or_digit()
        word = java_chars.unicode_word() if wide else letters | CharSet.chars((0x5F,))
        marks = java_chars.category("Mn")
        base, mark = self.chars(letters & BMP), self.chars(marks & BMP)
        one = self.chars(word)
        left = f"(?:{one}|{base}{mark}+)"
        right = f"(?={one}|{self.chars(marks)}(?<={base}{mark}*.))"
        edge = f"(?<={left})(?!{right})|(?<!{left}){right}"
        return f"(?!{edge})" if negative else f"(?:{edge})"


def _counts(node: Repeat) -> str:
    match node.least, node.most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case least, None:
            return f"{{{least},}}"
        case least, most:
            return f"{{{least},{most}}}"


def emit(tree: Node, referenced: frozenset[int], *, ascii_only: bool) -> str:
    """Return the source for the `regex` package, right for texts of ASCII only or for all."""
    return _Emitter(referenced, ascii_only=ascii_only).source(tree)
