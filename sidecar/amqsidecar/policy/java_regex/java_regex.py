"""java.util.regex in Python: a pattern means what it means in Java 17, or it is refused.

Our own parser reads the Java syntax; the `regex` package matches the parsed pattern, under a time
limit. It refuses patterns that Java refuses, and rare constructs whose meaning cannot be kept.
"""

from collections.abc import Callable
from functools import partial

import regex

from amqsidecar.policy.java_regex import limits as java_regex_limits
from amqsidecar.policy.java_regex.emit import emit, literal, without_outer_anchors
from amqsidecar.policy.java_regex.parser import parse
from amqsidecar.policy.java_regex.tree import JavaRegexError, Node

__all__ = ["JavaRegex", "JavaRegexError", "JavaRegexTimeout", "compile_java_regex"]

_HARMLESS_STEPS = 1e6
_LENGTHS = (1024, 512, 256, 128, 64, 32, 16)


class JavaRegexTimeout(Exception):
    """A match did not end within its time limit."""


class JavaRegex:
    """A java.util.regex pattern, matched in full."""

    __slots__ = (
        "_everything",
        "_harmless_length",
        "_literal",
        "_match_ascii",
        "_referenced",
        "_tree",
        "pattern",
        "timeout_ms",
    )

    def __init__(
        self, pattern: str, tree: Node, referenced: frozenset[int], *, timeout_ms: int
    ) -> None:
        self.pattern = pattern
        self.timeout_ms = timeout_ms
        self._tree = tree
        self._referenced = referenced
        self._literal = literal(tree)
        self._harmless_length = _harmless_length(tree)
        self._match_ascii = self._matcher(ascii_only=True)
        self._everything: Callable[..., object] | None = None

    def __repr__(self) -> str:
        return f"JavaRegex({self.pattern!r})"

    def __reduce__(self) -> tuple[Callable[..., "JavaRegex"], tuple[str]]:
        """Return how a pickle makes it again: Spark ships rules to its tasks."""
        return partial(compile_java_regex, timeout_ms=self.timeout_ms), (self.pattern,)

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches, as ``Pattern.matcher(text).matches()`` would.

        Raises:
            JavaRegexTimeout: No answer within ``timeout_ms``.
        """
        if self._literal is not None:
            return text == self._literal
        if text.isascii():
            match = self._match_ascii
        else:
            text = _paired(text)
            match = self._everything or self._match_everything()
        if len(text) <= self._harmless_length:
            return match(text) is not None
        try:
            return match(text, timeout=self.timeout_ms / 1000) is not None
        except TimeoutError as error:
            message = f"{self.pattern!r} needs more than {self.timeout_ms} ms for one name"
            raise JavaRegexTimeout(message) from error

    def _match_everything(self) -> Callable[..., object]:
        # Why: names beyond ASCII are rare, and spelled-out Unicode sets are slow to compile.
        self._everything = self._matcher(ascii_only=False)
        return self._everything

    def _matcher(self, *, ascii_only: bool) -> Callable[..., object]:
        source = emit(self._tree, self._referenced, ascii_only=ascii_only)
        flags = regex.VERSION0 | regex.DOTALL | regex.ASCII
        matcher: Callable[..., object] = regex.compile(source, flags).fullmatch
        return matcher


def _paired(text: str) -> str:
    """Join halves of surrogate pairs, which are one code point in Java."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _harmless_length(tree: Node) -> int:
    """Return the length up to which no text can take long to match."""
    nodes = java_regex_limits.size(tree)
    for length in _LENGTHS:
        if java_regex_limits.ways(tree, length) * nodes <= _HARMLESS_STEPS:
            return length
    return 0


def compile_java_regex(pattern: str, *, timeout_ms: int = 100) -> JavaRegex:
    """Return a pattern ready to match, with Java 17's meaning.

    Args:
        pattern: As one would hand it to ``Pattern.compile``, without flags.
        timeout_ms: How long one match may take, at least 1.

    Raises:
        JavaRegexError: Java refuses the pattern, or its meaning cannot be kept; with the position.

    Example:
        >>> compile_java_regex("foo.*").matches("foo.bar")
        True
    """
    tree = parse(pattern)
    referenced = java_regex_limits.check(pattern, tree)
    return JavaRegex(pattern, without_outer_anchors(tree), referenced, timeout_ms=timeout_ms)
