"""Reads application properties out of messages as the store keeps them, whatever their wire."""

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Final

from amqsidecar.brokers import amqp_sections as amqp
from amqsidecar.brokers import openwire_codec, stomp_frame
from amqsidecar.brokers.openwire_dead_letter import take_apart
from amqsidecar.brokers.openwire_properties import encode_text, read_properties
from amqsidecar.errors import UndecodableMessage

LONGEST_NAME: Final = 512
"""A property whose encoded name is longer is not read."""

LONGEST_TEXT: Final = 1_000
"""A longer value is cut to so many characters."""

ReadProperties = Callable[[str, bytes], dict[str, str] | None]
"""Encoding and message to chosen properties; None = it has none of them, or can't be read."""


def chosen_properties(names: Collection[str]) -> ReadProperties:
    """Return a reader of the properties of these names.

    Values are text: numbers in decimal, booleans `true` or `false`, as in Java. What is no plain
    value, such as a map or bytes, is left out.
    """
    wanted = frozenset(names)
    encoded = frozenset(encode_text(name) for name in names)

    def read(encoding: str, message: bytes) -> dict[str, str] | None:
        try:
            if encoding.startswith("amqp/"):
                found = _of_amqp(message, wanted)
            elif encoding == openwire_codec.ENCODING:
                found = _of_openwire(message, encoded)
            else:
                found = _of_stomp(message, wanted)
            return {name: text[:LONGEST_TEXT] for name, text in found} or None
        except UndecodableMessage:
            # Why no word: what can't be taken apart is parked, and told as such.
            return None

    return read


def _of_amqp(message: bytes, wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    section = amqp.split(message).get(amqp.APPLICATION_PROPERTIES)
    items = [] if section is None else amqp.pairs(section)
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Why: what is remembered stays small whatever is sent.
        name = _amqp_name(key) if len(key) <= LONGEST_NAME else ""
        if name in wanted:
            yield from _told(name, _plain_value(value))


@lru_cache(maxsize=1024)
def _amqp_name(key: bytes) -> str:
    name = _plain_value(key)
    return name if isinstance(name, str) else ""


def _plain_value(element: bytes) -> object:
    try:
        return amqp.scalar(element)
    except UndecodableMessage:
        return None


def _of_openwire(message: bytes, wanted: frozenset[bytes]) -> Iterator[tuple[str, str]]:
    for name, value in read_properties(take_apart(message).properties, wanted).items():
        yield from _told(name.decode("utf-8", "replace"), value)


def _of_stomp(message: bytes, wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    headers, _ = stomp_frame.parse_kept(message)
    # Why reversed: of several headers of one name the first one counts.
    for name, value in reversed(headers):
        if (text := name.decode("utf-8", "replace")) in wanted:
            yield text, value.decode("utf-8", "replace")


def _told(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, bool):
        yield name, "true" if value else "false"
    elif isinstance(value, str | int | float):
        yield name, str(value)
