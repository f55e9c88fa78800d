"""Asks Classic's statistics plugin over STOMP, which shows its answers as JSON.

Source: ActiveMQ Classic, StatisticsBroker.send; JmsFrameTranslator.
"""

import json
from collections.abc import Mapping, Sequence

from amqsidecar.brokers.classic.statistics import (
    ANSWER_S,
    BROKER_QUESTION,
    END_PROPERTY,
    QUESTION_MS,
    StatisticsReply,
)
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.clock import Clock
from amqsidecar.formats.stomp_classic_message import destination_header
from amqsidecar.formats.stomp_frame import Frame
from amqsidecar.model.destination import Destination, DestinationKind

_PREFETCH = 1_000
_REPLIES = Destination(DestinationKind.TEMP_QUEUE, "statistics")
_ADDRESS = b"/temp-queue/statistics"


class StompStatistics:
    """Questions and answers over one connection, with a temporary queue for the answers."""

    def __init__(
        self, connection: StompConnection, consumers: StompSubscriptions, clock: Clock
    ) -> None:
        self._connection = connection
        self._consumers = consumers
        self._clock = clock
        self._is_begun = False
        self._answers: list[StatisticsReply] = []

    def ask(self, questions: Sequence[Destination]) -> list[StatisticsReply] | None:
        """Send questions to these destinations; None = there is no answer.

        Raises:
            LinkLost: the connection is gone.
        """
        try:
            if not self._is_begun:
                options = ((b"transformation", b"jms-map-json"),)
                self._consumers.add(
                    _REPLIES,
                    _PREFETCH,
                    self._take,
                    acks=False,
                    options=options,
                    address=_ADDRESS,
                )
                if not self._answered([BROKER_QUESTION]):
                    return None
        except FrameRefused:
            return None
        self._is_begun = True
        return [told for told in self._answered(questions, has_end=True) if told]

    def _answered(
        self, questions: Sequence[Destination], *, has_end: bool = False
    ) -> list[StatisticsReply]:
        """Return the answers until each question had its last one, or the time is over."""
        self._answers.clear()
        expires_at_ms = self._clock.now_ms() + QUESTION_MS
        for question in questions:
            headers = [
                destination_header(question),
                (b"reply-to", _ADDRESS),
                (b"expires", b"%d" % expires_at_ms),
            ]
            if has_end:
                headers.append((END_PROPERTY.encode(), b"true"))
            self._connection.send("SEND", headers)
        ends_s = self._clock.monotonic_s() + ANSWER_S
        while self._count_ends(has_end=has_end) < len(questions):
            left_s = ends_s - self._clock.monotonic_s()
            if left_s <= 0:
                break
            self._connection.wait(left_s)
            self._consumers.route()
        return list(self._answers)

    def _count_ends(self, *, has_end: bool) -> int:
        return sum(not told for told in self._answers) if has_end else len(self._answers)

    def _take(self, frame: Frame) -> None:
        told = read_map(frame.body)
        if told is not None:
            self._answers.append(told)


def read_map(body: bytes) -> Mapping[str, object] | None:
    """Return the map that the broker's JSON holds; None = it holds none.

    An entry is `{"string": name, type: value}`, or `{"string": [name, value]}` for a text.
    """
    try:
        held = json.loads(body)["map"]
        entries = held["entry"] if held else []
        found: dict[str, object] = {}
        for entry in entries if isinstance(entries, list) else [entries]:
            values = [one for value in entry.values() for one in _as_list(value)]
            found[str(values[0])] = values[1]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None
    return found


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
