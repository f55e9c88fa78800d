"""Patterns of destinations, such as `orders.>`, and what they match."""

from functools import lru_cache
from itertools import zip_longest

from amqsidecar.model.destination import Destination, parse_destination


def parse_pattern(text: str) -> Destination:
    """Return a pattern of destinations, such as `orders.>`, `orders.#` or `topic://news.*`.

    Raises:
        ValueError: it is no pattern.
    """
    pattern = parse_destination(text)
    words = pattern.name.split(".")
    if words[-1] == "#":
        words[-1] = ">"
    if "" in words or any("#" in word or (">" in word and word != ">") for word in words):
        raise ValueError(f"{text!r} is no pattern: `*` is a word, `>` or `#` at the end any number")
    return Destination(pattern.kind, ".".join(words))


@lru_cache(maxsize=8_192)
def covers(pattern: str, other: str) -> bool:
    """Whether a pattern matches all that a destination or another pattern matches; "" is all.

    Example:
        >>> covers("orders.>", "queue://orders.eu.*"), covers("orders.*", "orders.>")
        (True, False)
    """
    if not pattern or not other:
        return not pattern
    wide, narrow = parse_pattern(pattern), parse_destination(other)
    if wide.kind is not narrow.kind:
        return False
    for one, word in zip_longest(wide.name.split("."), narrow.address.split(".")):
        if one == ">":
            return True
        if one is None or word in (None, ">", "#") or one not in ("*", word):
            return False
    return True


@lru_cache(maxsize=8_192)
def overlap(pattern: str, other: str) -> bool:
    """Whether two patterns may match one destination; "" is all.

    Example:
        >>> overlap("orders.*", "*.eu"), overlap("orders.>", "pay.>")
        (True, False)
    """
    if not pattern or not other:
        return True
    left, right = parse_pattern(pattern), parse_pattern(other)
    if left.kind is not right.kind:
        return False
    for one, word in zip_longest(left.name.split("."), right.name.split(".")):
        if ">" in (one, word):
            return True
        if one is None or word is None or (one != word and "*" not in (one, word)):
            return False
    return True
