"""Which dead letters STOMP carries whole, and how they are selected; sans-IO.

What STOMP made has only text in its properties, and a body that is text or bytes: it comes whole,
and a selector can find it. Of all else the frames show neither body type nor property types (a Map
arrives as garbage, an Object empty, and a Stream is never sent but fills our window, or even
removes our consumer). Such messages are therefore not selected at all, until the management's list
of messages, which has types, says that one is whole; then it is selected by its number, too.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from amqsidecar.formats.stomp_frame import MESSAGE_BYTES_MAX, OTHER_BYTES_MAX
from amqsidecar.model.left_behind import Loss

_DIED_AS_AMQP: Final = '"m.x-opt-ORIG-ADDRESS"'
# Why two thirds: Core counts a text as UTF-16, and two bytes of it may be three of a frame.
_LARGE_BYTES_MAX: Final = (MESSAGE_BYTES_MAX - OTHER_BYTES_MAX) * 2 // 3
_LARGE_SIZE: Final = "_AMQ_LARGE_SIZE"
_IS_TOO_LARGE: Final = f"{_LARGE_SIZE} > {_LARGE_BYTES_MAX}"
_BY_STOMP: Final = f"destination IS NOT NULL AND __AMQ_CID IS NULL AND {_DIED_AS_AMQP} IS NULL"
TOO_LARGE_BY_STOMP: Final = f"{_BY_STOMP} AND {_IS_TOO_LARGE}"
# Why no "<=": a text of that name, which a sender may give, is neither more nor less.
MADE_BY_STOMP: Final = f"{_BY_STOMP} AND ({_LARGE_SIZE} IS NULL OR NOT ({_IS_TOO_LARGE}))"
"""Every SEND leaves its destination behind as a property; JMS clients of Artemis their id.

What AMQP clients made has the annotations of a death, whatever properties it has. What may be
larger than a frame is left out: its frame would end each connection.
"""

MADE_BY_OTHERS: Final = (
    f"(destination IS NULL OR __AMQ_CID IS NOT NULL OR {_DIED_AS_AMQP} IS NOT NULL)"
)
ORIGINAL: Final = "_AMQ_ORIG_MESSAGE_ID"
NO_ORIGIN: Final = "no_origin"
TOO_LARGE: Final = "too_large"
UNSEEN: Final = "unseen"
WITHHELD: Final = "withheld"

_TEXT, _BYTES, _PLAIN = 3, 4, 0
_AMQP_KINDS: Final[Mapping[object, int]] = {5: _TEXT, 3: _BYTES, 0: _PLAIN}
_KNOWN = frozenset(
    (
        "messageID",
        "type",
        "priority",
        "durable",
        "expiration",
        "timestamp",
        "address",
        "userID",
        ORIGINAL,
        "_AMQ_ORIG_ROUTING_TYPE",
        "_AMQ_ACTUAL_EXPIRY",
        _LARGE_SIZE,
        "JMSXDeliveryCount",
    )
)
_SEQUENCE: Final = "_AMQ_GROUP_SEQUENCE"
_COMPRESSED: Final = "_AMQ_LARGE_COMPRESSED"
_MAY_BE_EMPTY = frozenset(("_AMQ_ORIG_QUEUE",))
_SELECTOR_BYTES_MAX: Final = 8000

MEANINGS: Final[Mapping[str, str]] = {
    Loss.BODY_TYPE.value: (
        "made by other clients than STOMP, with a body that is a Map, an Object, a Stream, "
        "perhaps null, or encoded by AMQP, which STOMP does not carry: use artemis://"
    ),
    Loss.PROPERTY_TYPES.value: (
        "they have properties that are numbers, booleans, or perhaps null, which STOMP would turn "
        "into text: use artemis://"
    ),
    "unknown": "only users with the manage permission can see whether STOMP carries it whole",
    UNSEEN: (
        "made by other clients than STOMP, and not looked at: the management lists the first "
        "messages of a queue only, and those are left behind; use artemis://, or raise "
        "management-browse-page-size (200) in the address-setting of the dead-letter address"
    ),
    WITHHELD: (
        "the broker does not deliver them although they are selected: a message group belongs to "
        "one consumer, and the messages behind it wait, too; find another consumer of this "
        "dead-letter queue and end it"
    ),
    TOO_LARGE: (
        f"larger than {_LARGE_BYTES_MAX} bytes as Artemis counts them (two for each character of a "
        "text), so that a frame of STOMP may not hold them: use artemis://"
    ),
    NO_ORIGIN: "the broker wrote no origin on them, so they are no dead letters",
}


class ListedMessage(NamedTuple):
    """A message as the management lists it.

    Attributes:
        number: the broker's number of it.
        original: the number that it had where it died; None = it did not die.
        message_id: its JMSMessageID; "" = it has none.
        loss: why it is left behind; "" = it is whole.
    """

    number: int
    original: int | None
    message_id: str
    loss: str


def read_list(text: str, allowed: Collection[Loss]) -> list[ListedMessage]:
    """Return the report of `listMessagesAsJSON` on messages that STOMP did not make.

    Quirk (Artemis): a property of the name `messageID` takes the place of the number. Such a
    message is left out, and so is never selected.
    """
    return [
        _listed(entry, allowed) for entry in json.loads(text) if type(entry.get("messageID")) is int
    ]


def _listed(entry: Mapping[str, Any], allowed: Collection[Loss]) -> ListedMessage:
    original = entry.get(ORIGINAL)
    if type(original) is not int:
        original = None
    large_bytes = entry.get(_LARGE_SIZE)
    loss = ""
    if original is None:
        loss = NO_ORIGIN
    elif isinstance(large_bytes, int) and large_bytes > _LARGE_BYTES_MAX:
        loss = TOO_LARGE
    elif not _carries_body(entry) and Loss.BODY_TYPE not in allowed:
        loss = Loss.BODY_TYPE.value
    elif _kind(entry) not in (_TEXT, _BYTES, _PLAIN):
        # Why also where it is allowed: nothing at all of such a body would be left.
        loss = Loss.BODY_TYPE.value
    elif not _carries_properties(entry) and Loss.PROPERTY_TYPES not in allowed:
        loss = Loss.PROPERTY_TYPES.value
    return ListedMessage(entry["messageID"], original, str(entry.get("userID") or ""), loss)


def _kind(entry: Mapping[str, Any]) -> object:
    """Return the type of a body, as Core numbers them; None = it is neither of those known."""
    kind = entry.get("type")
    marked = entry.get("x-opt-jms-msg-type")
    return _AMQP_KINDS.get(marked) if kind is None and isinstance(marked, int) else kind


def _carries_body(entry: Mapping[str, Any]) -> bool:
    # Why not the second: a text with such a property is sent as if it were bytes.
    if _COMPRESSED in entry:
        return False
    return entry.get("type") == _BYTES or (
        entry.get("type") == _TEXT and "content-length" not in entry
    )


def _carries_properties(entry: Mapping[str, Any]) -> bool:
    return all(
        # Why not "": null looks like that too.
        (isinstance(value, str) and (value != "" or name in _MAY_BE_EMPTY))
        # Why: Artemis writes 0 on each message of OpenWire, and takes any text for 0.
        or (name == _SEQUENCE and value == 0)
        for name, value in entry.items()
        if name not in _KNOWN and not name.startswith("__HDR_")
    )


def without(selector: str, originals: Iterable[int]) -> str:
    """Return a selector that leaves messages out, as many as one may name."""
    terms = [selector]
    length = len(selector)
    for original in originals:
        term = f"{ORIGINAL} <> {original}"
        length += len(term) + 5
        if length > _SELECTOR_BYTES_MAX:
            break
        terms.append(term)
    return " AND ".join(terms)


def only(originals: Iterable[int]) -> str:
    """Return the part of a selector that names messages."""
    return f"({' OR '.join(f'{ORIGINAL} = {original}' for original in originals)})"


def readable(excluded: Iterable[int], wanted: Iterable[ListedMessage]) -> str:
    """Return the selector of STOMP-made messages except some, and of wanted others."""
    made_by_stomp = without(MADE_BY_STOMP, excluded)
    originals = sorted({one.original for one in wanted if one.original is not None})
    if not originals:
        return made_by_stomp
    return f"({made_by_stomp}) OR ({MADE_BY_OTHERS} AND {only(originals)})"
