"""The tree of a parsed java.util.regex pattern, and its properties that depend on no text."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from math import inf

from amqsidecar.policy.java_regex.chars import CharSet


class JavaRegexError(ValueError):
    """A pattern that Java refuses, or whose meaning amqsidecar cannot promise to keep.

    Attributes:
        pattern: The whole pattern.
        position: 0-based index into it of the construct at fault.
        reason: The fault; begins with "not supported by amqsidecar" when Java takes it.
    """

    def __init__(self, pattern: str, position: int, reason: str) -> None:
        self.pattern = pattern
        self.position = position
        self.reason = reason
        near = pattern[position : position + 12]
        where = f"at index {position}, near {near!r}" if near else f"at index {position}, its end"
        super().__init__(f"Java regular expression {pattern!r}: {reason} ({where})")


class Mode(Enum):
    """How a quantifier gives back matched text."""

    GREEDY = auto()
    LAZY = auto()
    POSSESSIVE = auto()


class Anchor(Enum):
    """A condition on a position that needs no further text of its own."""

    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    UNIX_LINE_START = auto()
    LAST_LINE_END = auto()
    UNIX_LAST_LINE_END = auto()
    LINE_END = auto()
    UNIX_LINE_END = auto()
    WORD_EDGE = auto()
    NO_WORD_EDGE = auto()
    UNICODE_WORD_EDGE = auto()
    NO_UNICODE_WORD_EDGE = auto()


@dataclass(frozen=True, slots=True)
class Chars:
    """One code point of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class AnchorAt:
    """A position that satisfies an anchor."""

    anchor: Anchor


@dataclass(frozen=True, slots=True)
class LineBreak:
    """One line break of any kind; carriage return and line feed are one where possible."""


@dataclass(frozen=True, slots=True)
class BackReference:
    """A reference to a group; ``early`` = it precedes the group's closing parenthesis."""

    group: int
    ignore_case: bool
    early: bool
    position: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """The first branch after which the rest matches; at least two branches."""

    branches: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Parenthesis:
    """A parenthesis; ``number`` is its capturing number, 1-based, or None."""

    body: "Node"
    number: int | None
    position: int


@dataclass(frozen=True, slots=True)
class Atomic:
    """A part that never gives back."""

    body: "Node"


@dataclass(frozen=True, slots=True)
class Look:
    """A condition on the text after or before it; ``code_points`` as java.util.regex decides it."""

    body: "Node"
    behind: bool
    negative: bool
    position: int
    code_points: bool = True


@dataclass(frozen=True, slots=True)
class Repeat:
    """A quantifier; ``most`` None means without limit."""

    body: "Node"
    least: int
    most: int | None
    mode: Mode
    position: int


Node = (
    Chars
    | AnchorAt
    | LineBreak
    | BackReference
    | Sequence
    | Choice
    | Parenthesis
    | Atomic
    | Look
    | Repeat
)
EMPTY = Sequence(())


def children(node: Node) -> "tuple[Node, ...]":
    """Return the parts of a node, in order."""
    match node:
        case Sequence(items):
            return items
        case Choice(branches):
            return branches
        case Parenthesis(body=body) | Atomic(body) | Look(body=body) | Repeat(body=body):
            return (body,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def is_optional_group(node: Repeat) -> bool:
    """Return whether Java treats this quantifier as a choice between the group and nothing."""
    return (
        (node.least, node.most) == (0, 1)
        and isinstance(node.body, Parenthesis)
        and node.mode is not Mode.POSSESSIVE
    )


def is_deterministic(node: Node) -> bool:
    """Return whether java.util.regex sees only one way to match it (its ``study``)."""
    match node:
        case Choice():
            return False
        case Repeat(body=body, least=least, most=most):
            return least == most and (least, most) != (0, 1) and is_deterministic(body)
        case Look():
            return True
        case _:
            return all(map(is_deterministic, children(node)))


def is_loop(node: Repeat) -> bool:
    """Return whether Java repeats this group with full backtracking into each turn."""
    return (
        isinstance(node.body, Parenthesis)
        and node.mode is not Mode.POSSESSIVE
        and not is_optional_group(node)
        and not is_deterministic(node.body)
    )


def shortest(node: Node) -> int:
    """Return the least number of code points that a node can take."""
    match node:
        case Chars() | LineBreak():
            return 1
        case Choice(branches):
            return min(map(shortest, branches))
        case Look() | BackReference():
            return 0
        case Repeat(body=body, least=least):
            return least * shortest(body)
        case _:
            return sum(map(shortest, children(node)))


def longest(node: Node) -> float:
    """Return the greatest number of code points that a node can take, perhaps infinity."""
    match node:
        case Chars():
            return 1
        case LineBreak():
            return 2
        case Look():
            return 0
        case BackReference():
            return inf
        case Repeat(body=body, most=most):
            length = longest(body)
            return length * (inf if most is None else most) if length else 0
        case _:
            lengths = [longest(child) for child in children(node)]
            return max(lengths) if isinstance(node, Choice) else sum(lengths)
