"""A place that messages are sent to, on either broker, and patterns of such places."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import zip_longest


class DestinationKind(StrEnum):
    """The kind of a destination; the values are the broker's own URL schemes."""

    QUEUE = "queue"
    TOPIC = "topic"
    TEMP_QUEUE = "temp-queue"
    TEMP_TOPIC = "temp-topic"


_QUEUES = (DestinationKind.QUEUE, DestinationKind.TEMP_QUEUE)


@dataclass(frozen=True, slots=True)
class Destination:
    """A queue or topic, temporary or not.

    On Artemis `QUEUE` means anycast and `TOPIC` multicast routing; the name is an address, or
    `address::queue` (a fully qualified queue name) where one queue of the address is meant.

    Attributes:
        is_queue: whether it is a queue, temporary or not.
        address: Artemis: the address part of the name, without `::queue`.
    """

    kind: DestinationKind
    name: str
    is_queue: bool = field(init=False, repr=False, compare=False)
    address: str = field(init=False, repr=False, compare=False)
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Why: all are asked for several times per message, and destinations are few.
        object.__setattr__(self, "is_queue", self.kind in _QUEUES)
        object.__setattr__(self, "address", self.name.split("::", 1)[0])
        object.__setattr__(self, "_text", f"{self.kind.value}://{self.name}")

    def __hash__(self) -> int:
        # Why: a text remembers its hash, and a pair has none to remember.
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    @property
    def is_temporary(self) -> bool:
        """Whether it is a temporary queue or topic."""
        return self.kind in (DestinationKind.TEMP_QUEUE, DestinationKind.TEMP_TOPIC)


_SCHEMES = {f"{kind.value}://": kind for kind in DestinationKind}


_REMEMBERED_CHARACTERS = 2_048
"""Longer names are no destinations of re-sends; strangers write names as long as a message."""


def parse_destination(text: str, default: DestinationKind = DestinationKind.QUEUE) -> Destination:
    """Return the destination that a text such as `queue://A`, `topic://B` or plain `A` names.

    Args:
        text: a name, with or without one of the four schemes.
        default: the kind of a text without a scheme.

    Raises:
        ValueError: the name is empty.

    Source: ActiveMQ Classic, ActiveMQDestination.createDestination.

    Example:
        >>> str(parse_destination("topic://prices"))
        'topic://prices'
    """
    parse = _parsed if len(text) <= _REMEMBERED_CHARACTERS else _parsed.__wrapped__
    return parse(text, default)


@lru_cache(maxsize=4096)
def _parsed(text: str, default: DestinationKind) -> Destination:
    text = text.strip()
    kind = default
    for scheme, scheme_kind in _SCHEMES.items():
        if text.startswith(scheme):
            kind, text = scheme_kind, text[len(scheme) :]
            break
    if not text:
        raise ValueError("a destination needs a name")
    return Destination(kind, text)


def final_queue(dead_letter_queue: Destination, suffix: str) -> Destination:
    """Return the final dead-letter queue that belongs to one that the intake reads.

    Of a fully qualified name the queue counts, and the final queue has an address of its own: on
    the dead-letter address itself it would get every dead letter.

    Example:
        >>> str(final_queue(queue("DLA::DLQ.orders"), ".exhausted"))
        'queue://DLQ.orders.exhausted'
    """
    name = dead_letter_queue.name.rsplit("::", 1)[-1]
    return queue(name if name.endswith(suffix) else name + suffix)


def queue(name: str) -> Destination:
    """Return the queue of that name."""
    return Destination(DestinationKind.QUEUE, name)


def topic(name: str) -> Destination:
    """Return the topic of that name."""
    return Destination(DestinationKind.TOPIC, name)


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
