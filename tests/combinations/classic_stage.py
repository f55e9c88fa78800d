"""The queues of rows on a real Classic: made, and counted by its statistics plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import uuid4

from combinations.axes import Place, Wire
from combinations.case import COUNTED_OTHERWISE, Case, Contents, notes_queue, queue_of
from support.brokers.broker_xml import classic_xml
from support.brokers.real import ClassicBroker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer

_STRATEGIES: Final = """
<policyEntry queue=">"><deadLetterStrategy>
  <individualDeadLetterStrategy queuePrefix="DLQ."/>
</deadLetterStrategy></policyEntry>
"""
COURSES: Final[Mapping[str, tuple[int, int]]] = {
    "now": (4, 50),
    "soon": (4, 10_000),
    "hour": (4, 3_600_000),
}
"""Redeliveries and their delay in ms; of `once` there are none."""
_PATTERNS: Final = ("combo.*.{}.>", "Consumer.*.VirtualTopic.combo.*.{}.>")


def activemq_xml(cases: Iterable[Case], *, redelivers: bool) -> str:
    """Return the broker's file, or with the redelivery plugin the sidecar's policy."""
    composites = "".join(
        f'<compositeQueue name="{case.spot}" forwardOnly="{forward_only}"><forwardTo>'
        f'<queue physicalName="{case.prefix}.copy"/></forwardTo></compositeQueue>'
        for case in cases
        for place, forward_only in ((Place.COMPOSITE, "true"), (Place.COMPOSITE_COPIES, "false"))
        if case.is_at(place)
    )
    interceptors = (
        "<destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>"
        f'<virtualTopic name="VirtualTopic.>"/>{composites}</virtualDestinations>'
        "</virtualDestinationInterceptor></destinationInterceptors>"
    )
    entries = "".join(
        f'<redeliveryPolicy queue="{pattern.format(course)}" maximumRedeliveries="{times}" '
        f'initialRedeliveryDelay="{delay_ms}"/>'
        for course, (times, delay_ms) in COURSES.items()
        for pattern in _PATTERNS
    )
    plugin = (
        "<redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>"
        f"{entries}</redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap>"
        "</redeliveryPlugin>"
    )
    text = classic_xml(
        destination_policy=_STRATEGIES,
        plugins=f"<statisticsBrokerPlugin/>{plugin if redelivers else ''}",
        scheduler_support=True,
    )
    return text.replace("<destinationPolicy>", f"{interceptors}<destinationPolicy>", 1)


class ClassicStage:
    """One group's rows on a broker that other groups use, too."""

    def __init__(self, broker: ClassicBroker) -> None:
        self.broker = broker
        self._peer = JmsPeer.of(broker, "openwire")

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    def url(self, wire: Wire) -> str:
        """Return the sidecar's URL."""
        return {
            Wire.CLASSIC_OPENWIRE: self.broker.openwire_url,
            Wire.CLASSIC_STOMP: self.broker.stomp_url,
            Wire.CLASSIC_AMQP: self.broker.amqp_jms_url,
        }[wire]

    def open(self, group: str) -> None:
        """Make the queue of a group's notes."""
        self._make(notes_queue(group))

    def prepare(self, case: Case) -> None:
        """Make the queues of a row."""
        if case.is_virtual:
            self._make(f"Consumer.B.{case.origin}")
        self._make(case.died_in)
        if case.is_of_origin:
            case.arrived_in = frozenset({case.died_in})
            return
        case.destination = {
            Place.VIRTUAL_TOPIC: f"queue://Consumer.A.VirtualTopic.{case.target}",
            Place.INTERNAL: "topic://ActiveMQ.Advisory.Connection",
            Place.TEMPORARY: f"temp-queue://{case.target}",
            Place.NO_SUBSCRIBER: f"topic://{case.target}",
            Place.NOTES: f"queue://{notes_queue(case.group)}",
            Place.DEAD_LETTERS: f"queue://{case.source}",
        }.get(case.row.place, f"queue://{case.spot}")
        case.arrived_in = frozenset({queue_of(case.destination)})
        if case.row.place in (Place.PLAIN, Place.VIRTUAL_TOPIC):
            for queue in case.arrived_in:
                self._make(queue)

    def produce(self, cases: Sequence[Case]) -> None:
        """Let applications send the messages."""
        sent = self._peer.produce_each([case.application_message for case in cases])
        for case, message in zip(cases, sent, strict=True):
            case.sent = message

    def kill(self, cases: Sequence[Case]) -> None:
        """Let the messages die: their application rolls back."""
        for case in cases:
            self._peer.fail(case.died_in, "rollback", messages=1, deliveries=1)

    def write(self, notes: Sequence[Mapping[str, object]]) -> None:
        """Write notes of consumers."""
        self._peer.produce_each(notes)

    def contents(self, group: str) -> Contents:
        """Return what the queues of a group hold: browsed, and the broker's counts beside."""
        found: dict[str, Counter[str]] = {}
        for queue, count in self._counts().items():
            if group in queue.split("."):
                browsed = self._peer.browse(queue) if count else []
                found[queue] = Counter(one.test_id for one in browsed)
                if len(browsed) != count:
                    found[queue][COUNTED_OTHERWISE] = count - len(browsed)
        return found

    def browse(self, _case: Case, queue: str) -> Sequence[JmsMessage]:
        """Return the messages in a queue as the row's application sees them."""
        return self._peer.browse(queue)

    def _counts(self) -> Mapping[str, int]:
        """Return the size of each queue, as the statistics plugin says."""
        replies = f"statistics.{uuid4().hex}"
        self._peer.produce(
            "ActiveMQ.Statistics.Destination.>",
            "Message",
            reply_to=replies,
            group=None,
            sample_properties=False,
        )
        told = self._peer.consume(replies, wait_ms=500)
        return {
            str(one.body["destinationName"][1]).removeprefix("queue://"): int(one.body["size"][1])
            for one in told
            if str(one.body["destinationName"][1]).startswith("queue://")
        }

    def _make(self, queue: str) -> None:
        assert self._peer.browse(queue) == []


def redelivery_entries() -> Iterator[Mapping[str, object]]:
    """Return the same entries of the redelivery plugin as a policy in YAML has them."""
    for course, (times, delay_ms) in COURSES.items():
        for pattern in _PATTERNS:
            yield {
                "queue": pattern.format(course),
                "maximum_redeliveries": times,
                "initial_redelivery_delay_ms": delay_ms,
            }
