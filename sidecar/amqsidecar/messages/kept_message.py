"""Reads application properties from messages as the store keeps them, of every wire."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats import core_artemis_message, openwire_codec, stomp_frame
from amqsidecar.formats.openwire_dead_letter import group_field, take_apart
from amqsidecar.formats.openwire_properties import encode_text, read_properties
from amqsidecar.model.cause import TEXT_MAX
from amqsidecar.model.provenance import kept_cause
from amqsidecar.model.trace_context import (
    B3,
    CONTEXT_PROPERTIES,
    TRACEPARENT,
    is_sampled,
    parse_b3,
    parse_traceparent,
    sampling_limit,
)

LONGEST_NAME: Final = 512
"""A property whose encoded name is longer is not read."""

LONGEST_TEXT: Final = 1_000
"""Maximum characters of a value; the rest is cut."""

LONGEST_GROUP: Final = 256
"""Maximum characters of a message group; the rest is cut."""

ReadProperties = Callable[[str, bytes], dict[str, str] | None]
"""Encoding and message to chosen properties; None = it has none of them, or can't be read."""


ReadCause = Callable[[str, bytes], str | None]
"""Encoding and message to the consumer's reason for giving the message up; None = not stated."""

_GROUP_ID: Final = 10
"""Where it stands among the standard properties of AMQP."""

_GROUP_HEADERS: Final = (b"_AMQ_GROUP_ID", b"JMSXGroupID")

_CORE_GROUP, _CORE_JMS_GROUP = map(core_artemis_message.key_of, ("_AMQ_GROUP_ID", "JMSXGroupID"))

_PLAIN_RUN = re.compile(r"[\w.$-]+", re.ASCII)


def chosen_cause(names: Sequence[str]) -> ReadCause:
    """Return a reader of the first of these properties that a message has and that is not empty.

    Most messages have none: a search for the bytes of the names avoids taking them apart.
    """
    read = chosen_properties(names, TEXT_MAX)
    # Why a part: each wire writes the other characters of a name in its own way.
    runs = [max(_PLAIN_RUN.findall(name), key=len, default="") for name in names]
    marks = [run.encode() for run in runs]
    core_marks = [run.encode("utf-16-le") for run in runs]

    def cause(encoding: str, message: bytes) -> str | None:
        for mark in core_marks if encoding == core_artemis_message.ENCODING else marks:
            if mark in message:
                break
        else:
            return None
        found = read(encoding, message) or {}
        return kept_cause(next((found[name] for name in names if found.get(name)), None))

    return cause


def producer_of(share: float) -> Callable[[str, str, bytes], str]:
    """Return a reader of the producer's trace context (`Readers.producer`).

    Args:
        share: share of messages that are traced; the contexts of others are not read.
    """
    limit, read = sampling_limit(share), chosen_properties(CONTEXT_PROPERTIES)

    def producer(redelivery_id: str, encoding: str, message: bytes) -> str:
        if not is_sampled(redelivery_id, limit):
            return ""
        found = read(encoding, message) or {}
        context = parse_traceparent(found.get(TRACEPARENT, "")) or parse_b3(found.get(B3, ""))
        return "" if context is None else context.traceparent

    return producer


def chosen_properties(names: Collection[str], longest: int = LONGEST_TEXT) -> ReadProperties:
    """Return a reader of the properties of these names.

    Values are text: numbers in decimal, booleans `true` or `false`, as in Java. Other
    values, such as maps or bytes, are left out.

    Args:
        names: exact names.
        longest: maximum characters of a value; the rest is cut.
    """
    wanted = frozenset(names)
    encoded = frozenset(encode_text(name) for name in names)
    core_names = {core_artemis_message.key_of(name): name for name in names}

    def read(encoding: str, message: bytes) -> dict[str, str] | None:
        try:
            if encoding.startswith("amqp/"):
                found = _of_amqp(message, wanted)
            elif encoding == openwire_codec.ENCODING:
                found = _of_openwire(message, encoded)
            elif encoding == core_artemis_message.ENCODING:
                found = _of_core(message, core_names)
            else:
                found = _of_stomp(message, wanted)
            return {name: text[:longest] for name, text in found} or None
        except UndecodableMessage:
            # Why silent: an undecodable message is parked and reported as such.
            return None

    return read


def group_of(encoding: str, message: bytes) -> str | None:
    """Return the message group (`JMSXGroupID`) of a message; None = it has none.

    Classic does not show it over STOMP: there messages have none, or are not taken.
    """
    try:
        if encoding.startswith("amqp/"):
            section = amqp.split(message).get(amqp.PROPERTIES)
            fields = [] if section is None else amqp.elements(section)
            group = amqp.scalar(fields[_GROUP_ID]) if len(fields) > _GROUP_ID else None
        elif encoding == openwire_codec.ENCODING:
            group = group_field(take_apart(message))
        elif encoding == core_artemis_message.ENCODING:
            kept = core_artemis_message.take_apart(message).message
            properties = core_artemis_message.CoreProperties(kept.properties)
            group = properties.text(_CORE_GROUP) or properties.text(_CORE_JMS_GROUP)
        else:
            headers, _ = stomp_frame.parse_kept(message)
            found = (stomp_frame.first(headers, name) for name in _GROUP_HEADERS)
            group = next((one.decode("utf-8", "replace") for one in found if one), None)
    except UndecodableMessage:
        # Why no word: as above.
        return None
    return group[:LONGEST_GROUP] if isinstance(group, str) and group else None


def _of_amqp(message: bytes, wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    section = amqp.split(message).get(amqp.APPLICATION_PROPERTIES)
    items = [] if section is None else amqp.pairs(section)
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Why: long names from producers must not fill the cache.
        name = _amqp_name(key) if len(key) <= LONGEST_NAME else ""
        if name in wanted:
            yield from _told(name, amqp.plain_value(value))


@lru_cache(maxsize=1024)
def _amqp_name(key: bytes) -> str:
    name = amqp.plain_value(key)
    return name if isinstance(name, str) else ""


def _of_openwire(message: bytes, wanted: frozenset[bytes]) -> Iterator[tuple[str, str]]:
    for name, value in read_properties(take_apart(message).properties, wanted).items():
        yield from _told(name.decode("utf-8", "replace"), value)


def _of_core(message: bytes, names: Mapping[bytes, str]) -> Iterator[tuple[str, str]]:
    kept = core_artemis_message.take_apart(message).message
    properties = core_artemis_message.CoreProperties(kept.properties)
    for key, name in names.items():
        yield from _told(name, properties.value(key))


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
