"""Core dead letters in queues where it harms to read what can't be converted, found by their types.

Quirk (Artemis 2.44): some Core messages can't be converted to AMQP (see `may_be_unconvertible`).
The broker sends such a message to the dead-letter address of the queue it lies in at the first try
to hand it over, and drops it where there is none. Where that is the same queue, the copy has lost
its origin, the original is back when the consumer ends, and each further try makes one more copy;
the copies survive a restart of the broker. From a queue without such an address, and from one with
such a copy, nothing that needs converting is read before the management's list of messages has
shown that it can be converted.
"""

import json
from collections.abc import Collection, Mapping
from typing import Final

from amqsidecar.broker import IntakeQueue, LeftBehind
from amqsidecar.brokers.artemis.amqp_made import MADE_BY_AMQP, MADE_BY_OTHERS
from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion

_NUMBER: Final = "_AMQ_ORIG_MESSAGE_ID"
_OBJECT: Final = 2
_STREAM: Final = 6
_NUMBERS: Final = ("_AMQ_GROUP_SEQUENCE", "_AMQ_INGRESS_TIMESTAMP")
_ENCODED: Final = "JMS_AMQP_ENCODED_"
_ANNOTATIONS: Final = ("JMS_AMQP_MA_", "JMS_AMQP_DA_", "JMS_AMQP_FT_")
_FIRST_ACQUIRER: Final = "JMS_AMQP_FirstAcquirer"
_FETCHED_MAX: Final = 200


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


def quoted(text: str) -> str:
    """Return a text as selectors write it."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def selected(numbers: Collection[int]) -> str:
    """Return the selector of what AMQP clients have made, and of these messages."""
    wanted = [f"{_NUMBER} = {number}" for number in numbers]
    return " OR ".join([MADE_BY_AMQP, *wanted])


class AmqpCoreFetcher:
    """Finds which queues need it, and which of their messages can be read."""

    def __init__(self, management: ArtemisQuestions) -> None:
        self._management = management
        self._left: dict[IntakeQueue, set[int]] = {}

    def is_needed(self, queue: IntakeQueue) -> bool:
        """Return whether the broker would drop unconvertible messages, or has copied one.

        False = neither, or unknown.

        A fully qualified name is read without a selector, so it is not asked about either.
        """
        name = queue.destination.name
        if self._management.missing is not None or "::" in name:
            return False
        # Why the other keys: where the settings can't be read at all, this one is absent, too.
        settings = self._management.settings([name])[0]
        if not settings:
            return False
        target = settings.get("deadLetterAddress")
        if target and settings.get("autoCreateDeadLetterResources"):
            return False
        return not target or not self._management.queues(address=target) or self._holds_copies(name)

    def _holds_copies(self, name: str) -> bool:
        """Return whether a queue has such a copy among the messages that the broker looks at."""
        selector = f"{MADE_BY_OTHERS} AND _AMQ_ORIG_ADDRESS = {quoted(name)}"
        answer = self._management.ask(
            ManagementQuestion(f"queue.{name}", "countMessages", (selector,))
        )
        return answer.is_ok and int(answer.value) > 0

    def convertible(self, queue: IntakeQueue) -> list[int]:
        """Return the numbers of some readable dead letters; none = there are none now.

        The broker looks among the first messages of a queue only, 200 unless its address setting
        `management-browse-page-size` says otherwise; with as many left ones in front it stalls.
        """
        left = self._left[queue] = set[int]()
        found: list[int] = []
        answer = self._management.ask(
            ManagementQuestion(
                f"queue.{queue.destination.name}", "listMessagesAsJSON", (MADE_BY_OTHERS,)
            )
        )
        for entry in json.loads(answer.value or "[]") if answer.is_ok else ():
            number = entry.get(_NUMBER)
            if type(number) is not int:
                # Why: it did not die, or carries no number; no selector can name it.
                left.add(-1 - len(left))
            elif (
                may_be_unconvertible(entry)
                or entry.get("_AMQ_ORIG_ADDRESS") == queue.destination.name
            ):
                left.add(number)
            else:
                found.append(number)
        return found[:_FETCHED_MAX]

    def left_behind(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return what was seen in a queue and may not be convertible."""
        name = queue.destination.name
        count = len(self._left.get(queue, ()))
        if not count:
            return ()
        meaning = (
            "ObjectMessages and StreamMessages of Core or OpenWire clients: the broker can't "
            f"convert those without an object, or with bytes in them, to AMQP, and would drop them "
            f"or copy them to {name} without their origin; use artemis://, which takes them all"
        )
        return (LeftBehind(queue.destination, "not_convertible", count, meaning, at_least=True),)
