"""Asks Classic's statistics plugin over STOMP, which shows its answers as JSON.

Source: ActiveMQ Classic, StatisticsBroker.send; JmsFrameTranslator.
"""

import json
from collections.abc import Mapping, Sequence

from amqsidecar.brokers.classic.statistics import (
    END_PROPERTY,
    QUESTION_MS,
    StatisticsQuestions,
)
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.clock import Clock
from amqsidecar.formats.stomp_classic_message import destination_header
from amqsidecar.formats.stomp_frame import Frame
from amqsidecar.model.destination import Destination, DestinationKind

_PREFETCH = 1_000
_REPLIES = Destination(DestinationKind.TEMP_QUEUE, "statistics")
_ADDRESS = b"/temp-queue/statistics"


class StompStatistics(StatisticsQuestions):
    """Asks over one connection."""

    def __init__(
        self, connection: StompConnection, consumers: StompSubscriptions, clock: Clock
    ) -> None:
        super().__init__(connection, consumers, clock)
        self._connection = connection
        self._consumers = consumers

    def _begin(self) -> None:
        options = ((b"transformation", b"jms-map-json"),)
        self._consumers.add(
            _REPLIES, _PREFETCH, self._take, acks=False, options=options, address=_ADDRESS
        )

    def _put(self, questions: Sequence[Destination], *, has_end: bool) -> None:
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
