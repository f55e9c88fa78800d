"""Core dead letters in queues whose own address has no dead-letter address, found by their types.

Quirk (Artemis 2.44): a Core StreamMessage with bytes in it can't be converted to AMQP. The broker
sends it to the dead-letter address of the queue it lies in at the first try to hand it over, and
drops it where there is none. From such a queue nothing that needs converting is read before the
management's list of messages, which tells types, has shown that it is no stream.
"""

import json
from collections.abc import Collection
from typing import Final

from amqsidecar.broker import IntakeQueue, LeftBehind
from amqsidecar.brokers.artemis_management import ArtemisQuestions, Question

# Why it tells: clients of Core and OpenWire leave their id on their messages.
_NEEDS_NO_CONVERSION: Final = "__AMQ_CID IS NULL"
_NEEDS_CONVERSION: Final = "__AMQ_CID IS NOT NULL"
_NUMBER: Final = "_AMQ_ORIG_MESSAGE_ID"
_STREAM: Final = 6
_FETCHED_MAX: Final = 200


def selected(numbers: Collection[int]) -> str:
    """Return the selector of what needs no conversion, and of these messages."""
    wanted = [f"{_NUMBER} = {number}" for number in numbers]
    return " OR ".join([_NEEDS_NO_CONVERSION, *wanted])


class Fetcher:
    """Knows which queues need it, and what of them can be read."""

    def __init__(self, management: ArtemisQuestions) -> None:
        self._management = management
        self._streams: dict[IntakeQueue, set[int]] = {}

    def is_needed(self, queue: IntakeQueue) -> bool:
        """Tell whether the broker would drop what it can't convert; False where it can't be asked.

        A fully qualified name is read without a selector, so it is not told either.
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
        return not target or not self._management.queues(address=target)

    def convertible(self, queue: IntakeQueue) -> list[int]:
        """Return the numbers of some dead letters that can be read; none = there are none now.

        The broker looks among the first messages of a queue only, 200 unless its address setting
        `management-browse-page-size` says otherwise; with as many streams in front it stalls.
        """
        streams = self._streams[queue] = set[int]()
        found: list[int] = []
        answer = self._management.ask(
            Question(f"queue.{queue.destination.name}", "listMessagesAsJSON", (_NEEDS_CONVERSION,))
        )
        for entry in json.loads(answer.value or "[]") if answer.is_ok else ():
            number = entry.get(_NUMBER)
            if type(number) is int:
                (streams.add if entry.get("type") == _STREAM else found.append)(number)
        return found[:_FETCHED_MAX]

    def left_behind(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return the streams that were seen in a queue."""
        name = queue.destination.name
        count = len(self._streams.get(queue, ()))
        if not count:
            return ()
        meaning = (
            "StreamMessages of Core or OpenWire clients: the broker can't convert those with bytes "
            f"in them to AMQP, and would drop them, since {name} has no dead-letter address; add "
            f'<address-setting match="{name}"><dead-letter-address>{name}</dead-letter-address>'
            "</address-setting>"
        )
        return (LeftBehind(queue.destination, "not_convertible", count, meaning, at_least=True),)
