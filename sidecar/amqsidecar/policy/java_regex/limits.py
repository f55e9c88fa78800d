"""Unsupported parts of parsed patterns, and the worst-case cost of matching."""

from dataclasses import dataclass, replace
from math import inf, log

from amqsidecar.policy.java_regex.chars import BMP, EVERYTHING, LOW_SURROGATES, NOTHING, CharSet
from amqsidecar.policy.java_regex.reader import UNSUPPORTED
from amqsidecar.policy.java_regex.tree import (
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
    children,
    is_loop,
    is_optional_group,
    longest,
    shortest,
    walk,
)

LONGEST_LOOK_BEHIND = 255
MAX_EXPANDED = 20_000
_ASTRAL = ~BMP


@dataclass(frozen=True, slots=True)
class _Around:
    """The context of a node: does Java forget or keep stale groups, repeat, or commit there?"""

    stale_groups: bool = False
    repeated: bool = False
    committed: bool = False


class _Limits:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.stale: set[int] = set()
        self.references: list[tuple[BackReference, bool]] = []

    def unsupported(self, position: int, what: str) -> JavaRegexError:
        return JavaRegexError(self.pattern, position, f"{UNSUPPORTED}: {what}")

    def visit(self, node: Node, around: _Around) -> None:
        match node:
            case Parenthesis(number=int(number)):
                if around.stale_groups:
                    self.stale.add(number)
            case BackReference():
                self.references.append((node, around.repeated))
            case Look(behind=behind):
                if behind:
                    self.visit_look_behind(node)
                around = replace(around, stale_groups=True)
            case Atomic():
                around = replace(around, stale_groups=True, committed=True)
            case Repeat():
                self.visit_repeat(node, around)
                return
        for child in children(node):
            self.visit(child, around)

    def visit_repeat(self, node: Repeat, around: _Around) -> None:
        optional, loop = is_optional_group(node), is_loop(node)
        possessive = node.mode is Mode.POSSESSIVE
        if loop and shortest(node.body) == 0:
            delicate = (AnchorAt, Look, Atomic, BackReference)
            if around.committed or any(
                isinstance(part, delicate)
                or (isinstance(part, Repeat) and part.mode is Mode.POSSESSIVE)
                for part in walk(node.body)
            ):
                raise self.unsupported(node.position, "repeating a group that may match nothing")
        # Quirk (Java 17): giving back turns of a repetition leaves its groups where they were.
        inside = _Around(
            stale_groups=around.stale_groups or not optional,
            repeated=around.repeated or not optional,
            committed=around.committed or possessive,
        )
        self.visit(node.body, inside)

    def visit_look_behind(self, look: Look) -> None:
        for part in walk(look.body):
            endless = isinstance(part, BackReference)
            if isinstance(part, Repeat):
                endless = part.most is None or is_loop(part)
                if part.mode is Mode.POSSESSIVE or isinstance(part.body, LineBreak):
                    raise self.unsupported(part.position, "such a quantifier in a look-behind")
            if endless:
                reason = "a look-behind without an obvious maximum length"
                raise JavaRegexError(self.pattern, look.position, reason)
            if isinstance(part, Atomic):
                raise self.unsupported(look.position, "an atomic group in a look-behind")
        if longest(look.body) > LONGEST_LOOK_BEHIND:
            what = f"a look-behind longer than {LONGEST_LOOK_BEHIND} characters"
            raise self.unsupported(look.position, what)
        if not look.code_points and in_code_units(look.body) is None:
            what = "characters beyond U+FFFF in such a look-behind"
            raise self.unsupported(look.position, what)


def check(pattern: str, tree: Node) -> frozenset[int]:
    """Return the numbers of the groups that back-references name.

    Raises:
        JavaRegexError: A construct that Java refuses, or treats in a way that is not covered.
    """
    limits = _Limits(pattern)
    if _expanded(tree) > MAX_EXPANDED:
        # Why: the engine writes out repetitions of fixed text, all of them when they are nested.
        raise limits.unsupported(0, f"repetitions that multiply to more than {MAX_EXPANDED} parts")
    limits.visit(tree, _Around())
    existing = {part.number for part in walk(tree) if isinstance(part, Parenthesis)}
    for reference, repeated in limits.references:
        if reference.early and repeated and reference.group in existing:
            what = "a back-reference before the end of its group, inside a repetition"
            raise limits.unsupported(reference.position, what)
        if not reference.early and reference.group in limits.stale:
            what = "a back-reference into a repeated, atomic or look-around group"
            raise limits.unsupported(reference.position, what)
    return frozenset(ref.group for ref, _ in limits.references if not ref.early)


def _expanded(node: Node) -> int:
    below = sum(map(_expanded, children(node)))
    return 1 + below * max(1, node.least) if isinstance(node, Repeat) else 1 + below


def in_code_units(body: Node) -> Node | None:
    """Return a look-behind as Java reads it, by UTF-16 units; None when unclear.

    Quirk (Java 17): a look-behind steps by code points only when a character beyond U+FFFF stands
    in the pattern after it; otherwise it may start in the middle of a surrogate pair.
    """
    if all(_is_plain(part.chars) for part in walk(body) if isinstance(part, Chars)):
        return body
    while isinstance(body, Parenthesis):
        body = body.body
    if isinstance(body, Chars):
        return _last_unit(body.chars)
    if isinstance(body, Choice):
        branches = [_branch_in_code_units(branch) for branch in body.branches]
        known = tuple(branch for branch in branches if branch is not None)
        return Choice(known) if len(known) == len(branches) else None
    if isinstance(body, Sequence) and all(isinstance(item, Chars) for item in body.items):
        sets = [item.chars for item in body.items if isinstance(item, Chars)]
        if all(_is_plain(chars) or _is_blind(chars) for chars in sets):
            return Sequence((Chars(sets[0]), *(Chars(chars & BMP) for chars in sets[1:])))
    return None


def _branch_in_code_units(branch: Node) -> Node | None:
    while isinstance(branch, Parenthesis):
        branch = branch.body
    if isinstance(branch, Chars) and _is_blind(branch.chars):
        return branch
    plain = all(_is_plain(part.chars) for part in walk(branch) if isinstance(part, Chars))
    return branch if plain else None


def _last_unit(chars: CharSet) -> Node | None:
    """Return one character as seen from behind: of a surrogate pair only the second half."""
    low = chars & LOW_SURROGATES
    if low == NOTHING:
        return Chars(chars & BMP)
    return Chars((chars & BMP) | _ASTRAL) if low == LOW_SURROGATES else None


def _is_plain(chars: CharSet) -> bool:
    return chars & (_ASTRAL | LOW_SURROGATES) == NOTHING


def _is_blind(chars: CharSet) -> bool:
    return chars & (_ASTRAL | LOW_SURROGATES) == EVERYTHING & (_ASTRAL | LOW_SURROGATES)


def ways(node: Node, length: int) -> float:  # noqa: PLR0911 - one for each kind
    """Return an upper bound for the ways in which a node can try a text of this length."""
    match node:
        case LineBreak():
            return 2
        case Choice(branches):
            return sum(ways(branch, length) for branch in branches)
        case Look(body=body, behind=behind):
            spread = longest(body) - shortest(body) + 1 if behind else 1
            return ways(body, length) * spread
        case Repeat(body=body, least=least, most=most):
            turns = max(least, min(length, inf if most is None else most))
            each = ways(body, length)
            if each == 1:
                return turns - least + 1
            if turns > 1 and (shortest(body) == 0 or turns * log(each) > 40):
                return inf
            return float(each**turns * (turns - least + 1))
    total = 1.0
    for child in children(node):
        total *= ways(child, length)
    return total


def size(node: Node) -> int:
    """Return the number of nodes in a tree."""
    return sum(1 for _ in walk(node))
