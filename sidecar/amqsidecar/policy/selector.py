"""JMS selectors, as the filters of Artemis evaluate them; pure.

Source: Artemis, StrictParser.jj, FilterImpl.match, and the expressions of `artemis-selector`.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard

SelectorValue = bool | int | float | str | None
"""Of a property; None = the message has none."""


class NarrowInt(int):
    """A Byte or a Short of Java, which compares and negates in fewer ways than an Integer."""


class Unknown:
    """A value that a message has and the sidecar can't compute."""


UNKNOWN: Final = Unknown()

PropertyOf = Callable[[str], SelectorValue | Unknown]
"""Returns the value of a property or header field, by the name that a filter uses."""

_HYPHENATED: Final = "hyphenated_props:"
_PREFIXES: Final = (_HYPHENATED, f"no_{_HYPHENATED}", "no_convert_string_expressions:")
_NAME: Final = r"(?P<name>[A-Za-z_$][\w$]*)|"
_TOKEN: Final = (
    r"\s+|--[^\r\n]*[\r\n]|/\*.*?\*/|"
    r"(?P<float>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)|"
    r"(?P<int>0[xX][0-9a-fA-F]+|\d+[lL]?)|"
    r"(?P<text>'(?:[^']|'')*')|"
    r'(?P<quoted>"(?:[^"]|"")*")|' + _NAME + r"(?P<sign><>|<=|>=|[-+*/%=<>(),])"
)
_PLAIN_TOKEN: Final = re.compile(_TOKEN, re.ASCII | re.DOTALL)
_HYPHENATED_TOKEN: Final = re.compile(
    _TOKEN.replace(_NAME, _NAME.replace(r"[\w$]", r"[\w$-]")), re.ASCII | re.DOTALL
)
_WORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "TRUE", "FALSE", "NULL")
) | {"XPATH", "XQUERY"}
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_EXACT_MAX: Final = 2**24
"""A larger integer may be rounded where Java compares it with a Float."""
_DEPTH_MAX: Final = 100
_ORDERS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SUMS: Final = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class _Undecided(Exception):
    """The broker's answer can't be known."""


class _Node(NamedTuple):
    """A part of a selector."""

    evaluate: Callable[[PropertyOf], SelectorValue]
    is_condition: bool = False
    property: str = ""


class Selector:
    """A filter that was read."""

    def __init__(self, text: str) -> None:
        """Read a filter; an unreadable filter is never decided."""
        try:
            self._node = _Parser(text).read()
        except _Undecided:
            self._node = _Node(_undecided)

    def matches(self, property_of: PropertyOf) -> bool | None:
        """Return whether a message with these properties matches.

        None = it can't be decided: the filter asks for a body (XPATH) or an unknown value, or its
        arithmetic is one in which Java and Python differ.
        """
        try:
            return self._node.evaluate(property_of) is True
        except _Undecided:
            return None


@lru_cache(maxsize=1024)
def parse_selector(text: str) -> Selector:
    """Return the selector of a text."""
    return Selector(text)


def _undecided(_property_of: PropertyOf) -> NoReturn:
    raise _Undecided


class _Parser:
    """Reads one selector by recursive descent; each method is a rule of the broker's grammar."""

    def __init__(self, text: str) -> None:
        token = _PLAIN_TOKEN
        while prefix := next((one for one in _PREFIXES if text.startswith(one)), ""):
            if prefix.endswith(_HYPHENATED):
                token = _HYPHENATED_TOKEN if prefix == _HYPHENATED else _PLAIN_TOKEN
            text = text[len(prefix) :]
        self._tokens = [*_tokens(text, token), ("", "")]
        self._at = 0
        self._depth = 0

    def read(self) -> _Node:
        node = _as_condition(self._or())
        if self._at != len(self._tokens) - 1:
            raise _Undecided
        return node

    def _peek(self, ahead: int = 0) -> str:
        kind, text = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        return text if kind in ("word", "sign") else ""

    def _take(self, *wanted: str) -> str:
        found = self._peek()
        if found not in wanted:
            return ""
        self._at += 1
        return found

    def _demand(self, wanted: str) -> None:
        if not self._take(wanted):
            raise _Undecided

    def _text(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "text":
            raise _Undecided
        self._at += 1
        return text[1:-1].replace("''", "'")

    def _or(self) -> _Node:
        left = self._and()
        while self._take("OR"):
            left = _joined(left, self._and(), ends_with=True)
        return left

    def _and(self) -> _Node:
        left = self._equality()
        while self._take("AND"):
            left = _joined(left, self._equality(), ends_with=False)
        return left

    def _equality(self) -> _Node:
        left = self._comparison()
        while sign := self._take("=", "<>", "IS"):
            is_not = sign == "<>" or (sign == "IS" and bool(self._take("NOT")))
            if sign == "IS":
                self._demand("NULL")
                right = _Node(lambda _of: None)
            else:
                right = self._comparison()
            left = _not(_equal(left, right)) if is_not else _equal(left, right)
        return left

    def _comparison(self) -> _Node:
        left = self._sum()
        while True:
            if sign := self._take(*_ORDERS):
                left = _ordered(left, self._sum(), sign)
                continue
            is_not = self._peek() == "NOT" and self._peek(1) in ("LIKE", "BETWEEN", "IN")
            self._at += is_not
            match self._take("LIKE", "BETWEEN", "IN"):
                case "LIKE":
                    found = _like(left, self._text(), self._text() if self._take("ESCAPE") else "")
                    left = _not(found) if is_not else found
                case "BETWEEN":
                    left = self._between(left, is_not=is_not)
                case "IN":
                    left = self._in(left, is_not=is_not)
                case _:
                    return left

    def _between(self, value: _Node, *, is_not: bool) -> _Node:
        low = self._sum()
        self._demand("AND")
        high = self._sum()
        if is_not:
            return _joined(_ordered(value, low, "<"), _ordered(value, high, ">"), ends_with=True)
        return _joined(_ordered(value, low, ">="), _ordered(value, high, "<="), ends_with=False)

    def _in(self, value: _Node, *, is_not: bool) -> _Node:
        self._demand("(")
        texts = {self._text()}
        while self._take(","):
            texts.add(self._text())
        self._demand(")")

        return _of(
            [value], lambda one: (one in texts) is not is_not if isinstance(one, str) else None
        )

    def _sum(self) -> _Node:
        left = self._product()
        while sign := self._take("+", "-"):
            left = _calculated(left, self._product(), sign)
        return left

    def _product(self) -> _Node:
        left = self._unary()
        while sign := self._take("*", "/", "%"):
            left = _calculated(left, self._unary(), sign)
        return left

    def _unary(self) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _Undecided
        match self._take("+", "-", "NOT", "XPATH", "XQUERY"):
            case "+":
                node = self._unary()
            case "-":
                node = _negative(self._unary())
            case "NOT":
                node = _not(_as_condition(self._unary()))
            case "XPATH" | "XQUERY":
                self._text()
                node = _Node(_undecided, is_condition=True)
            case _:
                node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> _Node:
        if self._take("("):
            node = self._or()
            self._demand(")")
            return node
        if word := self._take(*_CONSTANTS):
            return _constant(_CONSTANTS[word], is_condition=True)
        kind, text = self._tokens[self._at]
        if kind == "text":
            return _constant(self._text())
        self._at += 1
        match kind:
            case "int":
                return _constant(_whole_number(text))
            case "float":
                return _constant(float(text))
            case "name" | "quoted":
                name = text[1:-1].replace('""', '"') if kind == "quoted" else text
                return _Node(lambda of: _read(of, name), property=name)
            case _:
                raise _Undecided


def _tokens(text: str, token: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = token.match(text, at)
        if found is None:
            raise _Undecided
        at = found.end()
        kind, word = found.lastgroup, found.group()
        if kind == "name" and word.upper() in _WORDS:
            yield "word", word.upper()
        elif kind is not None:
            yield kind, word


def _whole_number(text: str) -> int:
    digits = text.rstrip("lL")
    is_octal = digits[0] == "0" and len(digits) > 1
    try:
        value = int(digits, 16 if text[:2] in ("0x", "0X") else 8 if is_octal else 10)
    except ValueError:
        raise _Undecided from None
    if value > _LONG_MAX:
        raise _Undecided
    return value


def _of(
    nodes: Sequence[_Node], answer: Callable[..., SelectorValue], *, is_condition: bool = True
) -> _Node:
    """Return a node that answers by the values of others; no value (None) if one has none."""

    def evaluate(of: PropertyOf) -> SelectorValue:
        values = []
        for node in nodes:
            value = node.evaluate(of)
            if value is None:
                return None
            values.append(value)
        return answer(*values)

    return _Node(evaluate, is_condition=is_condition)


def _constant(value: SelectorValue, *, is_condition: bool = False) -> _Node:
    return _Node(lambda _of: value, is_condition=is_condition)


def _read(property_of: PropertyOf, name: str) -> SelectorValue:
    value = property_of(name)
    # Why the numbers: Java compares NaN and negative zero in another way than Python.
    if isinstance(value, Unknown) or (isinstance(value, float) and not abs(value) > 0.0):
        raise _Undecided
    return value


def _as_condition(node: _Node) -> _Node:
    if node.is_condition:
        return node
    if not node.property:
        raise _Undecided

    return _of([node], lambda value: value is True)


def _joined(left: _Node, right: _Node, *, ends_with: bool) -> _Node:
    """Return AND or OR; `ends_with` is the answer of either side that decides it."""
    first, second = _as_condition(left).evaluate, _as_condition(right).evaluate

    def evaluate(of: PropertyOf) -> SelectorValue:
        answer = first(of)
        if answer is ends_with:
            return answer
        other = second(of)
        return other if other is ends_with or answer is not None else None

    return _Node(evaluate, is_condition=True)


def _not(node: _Node) -> _Node:
    return _of([node], operator.not_)


def _equal(left: _Node, right: _Node) -> _Node:
    def evaluate(of: PropertyOf) -> SelectorValue:
        one, other = left.evaluate(of), right.evaluate(of)
        if one is None:
            # Why True: Java compares the two references.
            return True if other is None else None
        return other is not None and _compare(one, other, operator.eq)

    return _Node(evaluate, is_condition=True)


def _ordered(left: _Node, right: _Node, sign: str) -> _Node:
    return _of([left, right], lambda one, other: _compare(one, other, _ORDERS[sign]))


def _compare(one: SelectorValue, other: SelectorValue, holds: Callable[[Any, Any], bool]) -> bool:
    if _is_number(one) and _is_number(other):
        if isinstance(other, NarrowInt):
            # Why: Java knows no conversion of the right side, and none of a Short to a Byte.
            if isinstance(one, NarrowInt):
                raise _Undecided
            return False
        is_mixed = isinstance(one, float) is not isinstance(other, float)
        if is_mixed and max(abs(one), abs(other)) > _EXACT_MAX:
            raise _Undecided
        return holds(one, other)
    return type(one) is type(other) and holds(one, other)


def _is_number(value: SelectorValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _like(value: _Node, pattern: str, escape: str) -> _Node:
    if len(escape) > 1:
        raise _Undecided
    parts = [""]
    characters = iter(pattern)
    for one in characters:
        if one == escape:
            escaped = next(characters, "")
            # Why: the broker writes it into a Java pattern as two hexadecimal digits.
            if escaped and not 0x10 <= ord(escaped) <= 0xFF:
                raise _Undecided
            parts[-1] += re.escape(escaped)
        elif one == "%":
            parts.append("")
        else:
            parts[-1] += "." if one == "_" else re.escape(one)
    first, *middle = parts
    if middle:
        # Why atomic: the first place of each part will do, and no text may take for ever.
        last = middle.pop()
        first += "".join(f"(?>.*?{one})" for one in middle) + f".*{last}"
    found = re.compile(first, re.DOTALL)
    return _of([value], lambda text: isinstance(text, str) and found.fullmatch(text) is not None)


def _negative(node: _Node) -> _Node:
    def negative(value: SelectorValue) -> SelectorValue:
        if not _is_number(value):
            return None
        if isinstance(value, NarrowInt):
            raise _Undecided
        return -value

    return _of([node], negative, is_condition=False)


def _calculated(left: _Node, right: _Node, sign: str) -> _Node:
    def calculate(one: SelectorValue, other: SelectorValue) -> SelectorValue:
        if sign == "+" and isinstance(one, str):
            if isinstance(other, str):
                return one + other
            raise _Undecided
        if not _is_number(one) or not _is_number(other):
            # Why: the broker fails here, but not where AND has an answer before.
            raise _Undecided
        return _result(one, other, sign)

    return _of([left, right], calculate, is_condition=False)


def _result(one: float, other: float, sign: str) -> float:
    if sign in _SUMS:
        value: float = _SUMS[sign](one, other)
        if isinstance(value, int) and abs(value) > _INT_MAX:
            raise _Undecided
    elif other == 0:
        raise _Undecided
    else:
        value = one / other if sign == "/" else math.fmod(one, other)
    # Why: a Float and a zero, see `_read` and `_compare`.
    if isinstance(value, float) and not 0.0 < abs(value) < _EXACT_MAX:
        raise _Undecided
    return value
