"""The queues of rows on a real Artemis: made, changed after the death, and counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from amqsidecar.brokers.artemis.management import ManagementAnswer, ManagementQuestion
from combinations.axes import Death, Place, Policy, Wire
from combinations.case import BLUE, COUNTED_OTHERWISE, RED, Case, Contents, notes_queue, queue_of
from support.brokers.artemis_manager import ArtemisManager
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS
from support.brokers.real import ArtemisBroker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer

HOUR_MS: Final = 3_600_000
COURSES: Final[Mapping[str, Mapping[str, int]]] = {
    "now": {"max_delivery_attempts": 5, "redelivery_delay_ms": 0},
    "soon": {"max_delivery_attempts": 5, "redelivery_delay_ms": 10_000},
    "hour": {"max_delivery_attempts": 5, "redelivery_delay_ms": HOUR_MS},
    "once": {"max_delivery_attempts": 1, "redelivery_delay_ms": 0},
}
ADDRESS_SETTINGS: Final = STOCK_ADDRESS_SETTINGS + "".join(
    f'<address-setting match="combo.*.{course}.#">'
    f"<max-delivery-attempts>{one['max_delivery_attempts']}</max-delivery-attempts>"
    f"<redelivery-delay>{one['redelivery_delay_ms']}</redelivery-delay></address-setting>"
    for course, one in {
        **COURSES,
        "dead": {"max_delivery_attempts": -1, "redelivery_delay_ms": 0},
    }.items()
)
_PRODUCERS: Final = {Wire.AMQP: ("qpid", "qpid"), Wire.ARTEMIS: ("core", "qpid")}
"""The two applications of a group: of the rows of each variant."""


class ArtemisStage:
    """One group's rows on a broker that other groups use, too."""

    def __init__(self, broker: ArtemisBroker) -> None:
        self.broker = broker
        self._manager = ArtemisManager(broker)
        self._filler = JmsPeer.of(broker, "core")

    def close(self) -> None:
        """Close the connection."""
        self._manager.close()

    def url(self, wire: Wire) -> str:
        """Return the sidecar's URL."""
        return self.broker.pair_url.replace("artemis", wire, 1)

    # Before the death.

    def open(self, group: str) -> None:
        """Make the queue of a group's notes."""
        self._queue(notes_queue(group))

    def prepare(self, case: Case) -> None:
        """Make the queues of a row."""
        dead = {"deadLetterAddress": case.dead_letter_queue, "expiryAddress": case.expiry_queue}
        self._set(f"{case.prefix}.#", **dead)
        if not case.origin.startswith(case.prefix):
            self._set(case.origin, **dead, maxDeliveryAttempts=5)
        self._queue(case.dead_letter_queue)
        self._queue(case.expiry_queue)
        self._lay(case, case.origin, case.row.place if case.is_of_origin else Place.PLAIN)
        if case.is_of_origin:
            case.arrived_in = frozenset({case.died_in})
            return
        self._lay(case, case.spot, case.row.place)
        case.destination = self._destination(case)
        case.arrived_in = frozenset({queue_of(case.destination)})
        self._turn(case)

    def produce(self, cases: Sequence[Case]) -> None:
        """Let applications send the messages."""
        for variant in range(2):
            part = [case for case in cases if case.variant == variant]
            if part:
                messages = [case.application_message for case in part]
                sent = self._application(part[0]).produce_each(messages)
                for case, message in zip(part, sent, strict=True):
                    case.sent = message

    def kill(self, cases: Sequence[Case]) -> None:
        """Let the messages die; the broker's own act."""
        for case in cases:
            operation = (
                "expireMessages"
                if case.row.death is Death.EXPIRED
                else "sendMessagesToDeadLetterAddress"
            )
            killed = self._ask(f"queue.{case.died_in}", operation, "")
            assert killed.value == 1, (str(case.row), killed)
            if case.is_of_origin:
                self._turn(case)

    # What a destination is.

    def _lay(self, case: Case, address: str, place: Place) -> None:
        first = f"{address}.a"
        match place:
            case Place.FILTER_MATCHES:
                self._queue(address, filter_string=f"colour = '{RED}'")
            case Place.FILTER_REFUSES if address != case.origin:
                self._queue(address, filter_string=f"colour = '{BLUE}'")
            case Place.FILTER_REFUSES if case.edit:
                self._queue(address, filter_string=f"colour = '{RED}'")
            case Place.TWO_QUEUES:
                self._queue(first, address)
                self._queue(f"{address}.b", address)
            case Place.SUBSCRIPTION:
                self._queue(first, address, routing_type="MULTICAST", max_consumers=1)
                self._queue(f"{address}.b", address, routing_type="MULTICAST", max_consumers=1)
            case Place.SHARED_SUBSCRIPTION:
                self._queue(first, address, routing_type="MULTICAST")
                self._queue(f"{address}.b", address, routing_type="MULTICAST")
            case Place.LAST_VALUE:
                self._queue(address, last_value=True, last_value_key="key")
            case Place.NO_SUBSCRIBER:
                assert self._ask("broker", "createAddress", address, "MULTICAST").is_ok
            case Place.NOTES | Place.DEAD_LETTERS | Place.TEMPORARY:
                pass
            case Place.MISSING if address != case.origin:
                pass
            case _:
                self._queue(address)

    def _turn(self, case: Case) -> None:
        """Make the destination of the row's kind what it is when the message is sent there."""
        spot, place = case.spot, case.row.place
        match place:
            case Place.FILTER_REFUSES if case.is_of_origin and not case.edit:
                self._update(spot, filter_string=f"colour = '{BLUE}'")
            case Place.DIVERT_COPIES | Place.DIVERT_TAKES:
                self._queue(f"{case.prefix}.diverted")
                self._divert(case, exclusive=place is Place.DIVERT_TAKES)
            case Place.RING:
                self._fill(case, spot)
                self._update(spot, ring_size=1)
            case Place.LAST_VALUE:
                self._fill(case, spot)
            case Place.FULL_DROPS | Place.FULL_FAILS:
                self._fill(case, spot)
                how = "DROP" if place is Place.FULL_DROPS else "FAIL"
                self._set(spot, maxSizeMessages=1, addressFullMessagePolicy=how)
            case Place.DELETED:
                self._set(spot, autoCreateQueues=False, autoCreateAddresses=False)
                assert self._ask("broker", "destroyQueue", spot).is_ok
            case Place.MISSING if case.is_of_origin:
                assert self._ask("broker", "destroyQueue", spot, True, True).is_ok
            case Place.DISABLED:
                assert self._ask(f"queue.{spot}", "disable").is_ok
            case _:
                pass

    def _destination(self, case: Case) -> str:
        """Return what a redirect names; of a final queue its name."""
        target = case.spot
        first = f"{target}::{target}.a"
        match case.row.place:
            case Place.TWO_QUEUES:
                return f"queue://{first}"
            case Place.SUBSCRIPTION | Place.SHARED_SUBSCRIPTION:
                return f"topic://{first}"
            case Place.NO_SUBSCRIBER:
                return f"topic://{target}"
            case Place.TEMPORARY:
                return f"temp-queue://{target}"
            case Place.INTERNAL:
                return "queue://activemq.management"
            case Place.NOTES:
                return f"queue://{notes_queue(case.group)}"
            case Place.DEAD_LETTERS:
                return f"queue://{case.source}"
            case _:
                return f"queue://{target}"

    # Counting.

    def contents(self, group: str) -> Contents:
        """Return what the queues of a group hold: the broker's lists, and its counts beside."""
        rows = self._manager.queues_like(f"combo.{group}.")
        questions = [
            ManagementQuestion(f"queue.{row.name}", "listMessagesAsJSON", ("",)) for row in rows
        ]
        found: dict[str, Counter[str]] = {}
        for row, answer in zip(rows, self._manager.ask_all(questions), strict=True):
            assert answer.is_ok, (row.name, answer)
            messages = json.loads(answer.value)
            found[row.name] = Counter(str(one.get("testId", "")) for one in messages)
            if len(messages) != row.message_count:
                found[row.name][COUNTED_OTHERWISE] = row.message_count - len(messages)
        return found

    def browse(self, case: Case, queue: str) -> Sequence[JmsMessage]:
        """Return the messages in a queue as the row's application sees them."""
        [address] = [row.address for row in self._manager.queues(name=queue)]
        name = queue if queue == address else f"{address}::{queue}"
        return self._application(case).browse(name)

    def write(self, notes: Sequence[Mapping[str, object]]) -> None:
        """Write notes of consumers."""
        self._filler.produce_each(notes)

    def _application(self, case: Case) -> JmsPeer:
        names = _PRODUCERS.get(case.row.wire, ("core", "core"))
        return JmsPeer.of(self.broker, names[case.variant])

    # The broker's management.

    def _queue(self, name: str, address: str = "", **more: object) -> None:
        configuration = {
            "name": name,
            "address": address or name,
            "routing-type": "ANYCAST",
            "durable": True,
            "auto-create-address": True,
            "auto-delete": False,
        } | {key.replace("_", "-"): value for key, value in more.items()}
        answer = self._ask("broker", "createQueue", json.dumps(configuration), True)
        assert answer.is_ok, answer

    def _update(self, name: str, **more: object) -> None:
        changed = {"name": name} | {key.replace("_", "-"): value for key, value in more.items()}
        answer = self._ask("broker", "updateQueue", json.dumps(changed))
        assert answer.is_ok, answer

    def _divert(self, case: Case, *, exclusive: bool) -> None:
        configuration = {
            "name": f"{case.prefix}.divert",
            "routing-name": f"{case.prefix}.divert",
            "address": case.spot,
            "forwarding-address": f"{case.prefix}.diverted",
            "exclusive": exclusive,
            "routing-type": "ANYCAST",
        }
        assert self._ask("broker", "createDivert", json.dumps(configuration)).is_ok

    def _fill(self, case: Case, queue: str) -> None:
        self._filler.produce(
            queue,
            "Text",
            text="x",
            group=None,
            sample_properties=False,
            properties={"key": "k", "colour": RED},
            test_id=case.filled_as,
        )

    def _set(self, match: str, **settings: object) -> None:
        assert self._ask("broker", "addAddressSettings", match, json.dumps(settings)).is_ok

    def _ask(self, resource: str, operation: str, *arguments: object) -> ManagementAnswer:
        return self._manager.ask(ManagementQuestion(resource, operation, arguments))


def policy_of(policy: Policy, cases: Sequence[Case]) -> Iterator[Mapping[str, object]]:
    """Return the entries of a policy file for these rows."""
    if policy is Policy.SILENT:
        yield {"match": "elsewhere.#", "max_delivery_attempts": 3}
        return
    for case in cases:
        entry: dict[str, object] = dict(COURSES[case.row.course])
        if policy is Policy.FULL:
            entry["dead_letter_address"] = case.dead_letter_queue
            entry["expiry_address"] = case.expiry_queue
        yield {"match": f"{case.prefix}.#", **entry}
        if not case.origin.startswith(case.prefix):
            yield {"match": case.origin, **entry}
