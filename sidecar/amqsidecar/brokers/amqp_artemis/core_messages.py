"""Core dead letters are read over AMQP only once a list has shown that they can be converted.

Quirk (Artemis 2.44): some Core messages can't be converted to AMQP (see `may_be_unconvertible`).
At the first try to hand one over, the broker moves it to the dead-letter address of its queue, and
drops it where there is none. Where that is the same queue, a copy lies there whose origin is that
queue; the original is back when its reader ends, and gone after a restart. No selector shows the
type of a body; the management's list does. So a receiver selects what AMQP clients have made, and
of the rest only what the list has shown to be convertible, each message by its number or id.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP, MADE_BY_OTHERS
from amqsidecar.brokers.artemis.management import ManagementAnswer, ManagementQuestion, of_queue
from amqsidecar.brokers.selectors import both, quoted
from amqsidecar.formats.amqp_artemis_message import CORE_NUMBER, core_number
from amqsidecar.formats.artemis_properties import COMPRESSED
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

_OBJECT, _BYTES, _STREAM = 2, 4, 6
_NUMBERS: Final = ("_AMQ_GROUP_SEQUENCE", "_AMQ_INGRESS_TIMESTAMP")
_ENCODED: Final = "JMS_AMQP_ENCODED_"
_ANNOTATIONS: Final = ("JMS_AMQP_MA_", "JMS_AMQP_DA_", "JMS_AMQP_FT_")
_FIRST_ACQUIRER: Final = "JMS_AMQP_FirstAcquirer"
NEEDS_NO_CONVERSION: Final = "__AMQ_CID IS NULL"
"""Selector of messages of STOMP and MQTT clients: those of Core and OpenWire clients have this."""

BROWSABLE: Final = f"{MADE_BY_AMQP} OR {NEEDS_NO_CONVERSION}"
"""Selector of what can be browsed without a conversion that may fail."""

LISTED_MAX: Final = 200
"""Maximum messages of a queue that the broker examines for a list.

Precedent: management-browse-page-size unless configured.
"""
_TERMS_MAX: Final = 4
# Bound: a message that has not come by then was taken by another consumer, or the broker is slow.
_VAIN_S: Final = 1.0
_VAIN_LISTS: Final = 10
_HOLDING_S: Final = 30.0
_REASON: Final = "not_convertible"

NOT_CONVERTIBLE: Final = (
    "ObjectMessages and StreamMessages of Core or OpenWire clients, or messages with "
    "properties that begin with JMS_AMQP_: the broker can't convert all of them to AMQP, and a "
    "failed attempt overwrites the origin, so none is read; use artemis://, which reads them "
    "all"
)
CUT: Final = (
    "BytesMessages that a Core client has compressed: the broker cuts them when it converts them "
    "to AMQP; use artemis://"
)
_UNLISTED: Final = (
    "messages of Core and OpenWire clients are not read, because the broker does not list them: "
)
_BEHIND: Final = (
    f"; the broker lists the first {LISTED_MAX} messages of a queue only, unless "
    "management-browse-page-size says otherwise, so that others wait behind these"
)


def may_be_unconvertible(entry: Mapping[str, object]) -> bool:
    """Return whether the broker may be unable to convert a Core message that it lists to AMQP.

    The list shows no bodies: it reports an ObjectMessage with an object like one without, and a
    StreamMessage without bytes like one with bytes. It doesn't show a body that is no body of its
    type, which only the Core API can write.

    Source: Artemis, CoreAmqpConverter.fromCore and the wrappers; measured by
    `tests/end_to_end/fidelity/test_core_conversion.py`.
    """
    if entry.get("type") in (_OBJECT, _STREAM):
        return True
    return (
        any(type(entry.get(name, 0)) is not int for name in _NUMBERS)
        or type(entry.get(_FIRST_ACQUIRER, True)) is int
        or any(
            name.startswith(_ENCODED)
            or (name.startswith(_ANNOTATIONS) and isinstance(value, list | dict))
            for name, value in entry.items()
        )
    )


def list_of_others(queue: IntakeQueue) -> ManagementQuestion:
    """Return the request for messages that the broker would have to convert."""
    selector = both(queue.selector, MADE_BY_OTHERS)
    return of_queue(queue.destination, "listMessagesAsJSON", selector)


class Listed:
    """The newest list of a queue, and which of its messages were asked for.

    Attributes:
        awaited: numbers and ids that were asked for and have not come yet.
        left: how many messages may be unconvertible, or can't be named.
        cut: how many the broker would cut.
        refusal: the broker's words why it lists nothing; "" = it does.
    """

    def __init__(self) -> None:
        self.awaited: set[int | str] = set()
        self.left = self.cut = 0
        self.refusal = ""
        self._since_s = 0.0

    def is_due(self, now_s: float, list_s: float, *, holds_back: bool) -> bool:
        """Return whether the list is to be read again; the last one took `list_s`."""
        rest_s = max(_VAIN_S, _VAIN_LISTS * list_s) if self.awaited else 0.0
        # Why longer: a new receiver gets what the old one has in hand and never gives away, too.
        return now_s >= self._since_s + (_HOLDING_S if holds_back else rest_s)

    def read(self, answer: ManagementAnswer, now_s: float) -> bool:
        """Record a list; return whether it has messages to ask for."""
        self.refusal = "" if answer.is_ok else str(answer.value)
        entries = json.loads(answer.value or "[]") if answer.is_ok else []
        left: list[int | str | None] = []
        found: dict[int | str, None] = {}
        self.cut = 0
        for entry in entries:
            name = _name_of(entry)
            if entry.get("type") == _BYTES and COMPRESSED in entry:
                self.cut += 1
            elif name is None or may_be_unconvertible(entry):
                left.append(name)
            else:
                found[name] = None
        self.left = len(left)
        # Why without those: a selector means all that have one name.
        wanted = [one for one in found if one not in left][:LISTED_MAX]
        self.awaited = set(wanted)
        if wanted:
            # Why also what was asked for before: only a new consumer is offered a message whose
            # group belonged to one that is closed.
            self._since_s = now_s
        return bool(wanted)

    def selector(self) -> str:
        """Return the selector of messages that AMQP clients made, and of awaited ones."""
        numbers = sorted(one for one in self.awaited if isinstance(one, int))
        ids = ", ".join(quoted(one) for one in self.awaited if isinstance(one, str))
        terms = [MADE_BY_AMQP]
        if ids:
            terms.append(f"({CORE_NUMBER} IS NULL AND AMQUserID IN ({ids}))")
        if numbers:
            terms.append(_one_of(numbers))
        return " OR ".join(terms)

    def came(self, message: bytes, message_id: str | None, now_s: float) -> bool:
        """Record an arrived message; return whether it was the last awaited one."""
        if not self.awaited:
            return False
        name = core_number(message)
        self.awaited.discard(name if name is not None else message_id or "")
        self._since_s = now_s
        return not self.awaited

    def left_behind(self, queue: Destination, *, at_least: bool = True) -> Iterator[LeftBehind]:
        """Yield the messages of the newest list that are not tried yet."""
        if self.refusal:
            yield left_unlisted(queue, self.refusal)
        behind = _BEHIND if self.left + self.cut >= LISTED_MAX else ""
        for count, meaning in ((self.left, NOT_CONVERTIBLE), (self.cut, CUT)):
            if count:
                yield LeftBehind(queue, _REASON, count, meaning + behind, at_least=at_least)


def left_unlisted(queue: Destination, why: str) -> LeftBehind:
    """Return that a queue's messages of Core and OpenWire clients are not read."""
    return LeftBehind(queue, _REASON, 0, _UNLISTED + why, at_least=True)


def _name_of(entry: Mapping[str, Any]) -> int | str | None:
    """Return the number that a message had where it died, otherwise its id; None = neither."""
    number = entry.get(CORE_NUMBER)
    if type(number) is int:
        return number
    message_id = entry.get("userID")
    return message_id if isinstance(message_id, str) and message_id else None


def _one_of(numbers: Sequence[int]) -> str:
    """Return the selector of these numbers, which are sorted.

    Why halved: the broker tries the selector on each message of a queue, which may be long.
    """
    if len(numbers) <= _TERMS_MAX:
        return " OR ".join(f"{CORE_NUMBER} = {one}" for one in numbers)
    middle = len(numbers) // 2
    low, high = _one_of(numbers[:middle]), _one_of(numbers[middle:])
    bound = numbers[middle]
    return f"({CORE_NUMBER} < {bound} AND ({low})) OR ({CORE_NUMBER} >= {bound} AND ({high}))"
