"""The pairs of broker and wire, and what is set up on each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from support.brokers.broker_xml import (
    ARTEMIS_ACCEPTORS,
    STOCK_ADDRESS_SETTINGS,
)
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import ALL_TYPES
from support.versions import CLASSIC_5, CLASSIC_6

ORDERS, PAYMENTS = QUEUES = ("chaos.orders", "chaos.payments")
DELAYS_MS = {ORDERS: (300, 300), PAYMENTS: (200, 400, 800)}
"""By queue the delay before each redelivery; there are no more."""

CLASSIC_POLICY = """\
plugins:
  - redelivery:
      entries:
        - {queue: chaos.orders, maximum_redeliveries: 2, initial_redelivery_delay_ms: 300,
           redelivery_delay_ms: 300}
        - {queue: chaos.payments, maximum_redeliveries: 3, initial_redelivery_delay_ms: 200,
           use_exponential_back_off: true, back_off_multiplier: 2}
dead_letter:
  entries:
    - {queue: ">", dead_letter_strategy: {kind: individual, queue_prefix: DLQ.}}
"""
ARTEMIS_POLICY = """\
address_settings:
  - {match: chaos.orders, dead_letter_address: DLQ, max_delivery_attempts: 3,
     redelivery_delay_ms: 300}
  - {match: chaos.payments, dead_letter_address: DLQ, max_delivery_attempts: 4,
     redelivery_delay_ms: 200, redelivery_delay_multiplier: 2.0, max_redelivery_delay_ms: 10000}
"""
# As the documents ask for: what is in hand when a sidecar dies counts as a failed delivery.
ARTEMIS_SETTINGS = """
<address-setting match="chaos.#"><max-delivery-attempts>2</max-delivery-attempts></address-setting>
<address-setting match="DLQ"><max-delivery-attempts>-1</max-delivery-attempts></address-setting>
"""
INDIVIDUAL = """
<policyEntry queue=">"><deadLetterStrategy>
  <individualDeadLetterStrategy queuePrefix="DLQ."/>
</deadLetterStrategy></policyEntry>
"""
TEXT_AND_BYTES = ("Text", "Bytes")
# What the broker adds to what comes in over a connector with `transport.transformer=jms`.
MAPPED = (
    "JMS_AMQP_HEADER",
    "JMS_AMQP_PROPERTIES",
    "JMS_AMQP_ORIGINAL_ENCODING",
    "JMS_AMQP_ContentType",
)
# What Artemis leaves on final dead letters of clients other than those of AMQP.
ARTEMIS_ORIGINS = (
    *("_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_ROUTING_TYPE"),
    "_AMQ_ORIG_MESSAGE_ID",
)
# The same, and what it leaves of the headers of each SEND.
ARTEMIS_STOMP = (
    *ARTEMIS_ORIGINS,
    *("destination", "destination-type", "transaction", "receipt", "content-length", "persistent"),
)


@dataclass(frozen=True)
class Pair:
    """A broker, a wire of the sidecar, and the JMS applications beside it.

    Attributes:
        name: as `--only` takes it.
        port: mark of the port that the sidecar connects to.
        provider: of the JMS applications.
        ways: how the consumers of QUEUES fail.
        types: of the messages; those that the wire carries whole.
        options: of the sidecar, beside those of all.
        only_texts: whether properties are strings only.
        added: properties that the documents say a redelivery has in addition.
        sidecars: how many there are; more than one share a schedule in PostgreSQL.
        is_held: whether the broker keeps what waits.
        provider_of_payments: of the applications at PAYMENTS; "" = the same as of the others.
    """

    name: str
    make_broker: Callable[[], Broker]
    port: str
    provider: str
    ways: tuple[str, str]
    types: Sequence[str]
    options: Sequence[str] = ()
    only_texts: bool = False
    added: Sequence[str] = ()
    sidecars: int = 1
    is_held: bool = False
    provider_of_payments: str = ""

    @property
    def providers(self) -> dict[str, str]:
        """By queue the provider of its applications."""
        return {ORDERS: self.provider, PAYMENTS: self.provider_of_payments or self.provider}

    @property
    def is_shared(self) -> bool:
        """Whether the schedule is in PostgreSQL."""
        return self.sidecars > 1

    @property
    def is_artemis(self) -> bool:
        """Whether the broker is Artemis."""
        return self.name.startswith("artemis")

    @property
    def wire(self) -> str:
        """Scheme of the sidecar's URL."""
        return self.name.rpartition("-")[2]

    @property
    def policy(self) -> str:
        """The sidecar's rules."""
        return ARTEMIS_POLICY if self.is_artemis else CLASSIC_POLICY

    @property
    def dead_letter_queues(self) -> tuple[str, ...]:
        """What the sidecar reads."""
        return ("DLQ",) if self.is_artemis else tuple(f"DLQ.{queue}" for queue in QUEUES)

    @property
    def intake(self) -> tuple[str, ...]:
        """Options of the sidecar that say what it reads."""
        origins = ", ".join(f"DLQ.{queue}: {queue}" for queue in QUEUES)
        needs_origins = not self.is_artemis and self.wire == "amqp"
        return (
            f"intake.queues=[{', '.join(self.dead_letter_queues)}]",
            *([f"intake.origin={{{origins}}}"] if needs_origins else []),
        )


def _artemis() -> Broker:
    idle = f"{ARTEMIS_ACCEPTORS['artemis']};amqpIdleTimeout=2000"
    return ArtemisBroker(
        address_settings=STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS, acceptors={"artemis": idle}
    )


def _classic(version: str) -> Callable[[], Broker]:
    # Why not concurrent: killed, Classic would lose dead letters by itself (connecting.md).
    return lambda: ClassicBroker(
        version,
        destination_policy=INDIVIDUAL,
        kahadb_attributes='concurrentStoreAndDispatchQueues="false"',
    )


_ALL = ("rollback", "recover")
_STOMP: dict[str, Any] = {"types": TEXT_AND_BYTES, "only_texts": True, "ways": _ALL}
_CLASSIC_STOMP: dict[str, Any] = {
    **_STOMP,
    # Why: a text that looks like a number could be one, for all that STOMP shows.
    "options": ("intake.allow_lossy=[property_types]",),
    "added": ("amqsidecarOriginalDestination",),
}
_WHOLE_OVER_AMQP = tuple(one for one in ALL_TYPES if one not in ("Message", "Stream"))

PAIRS = (
    Pair("artemis-amqp", _artemis, "PORT", "qpid", ("rollback", "reject"), ALL_TYPES),
    Pair("artemis-stomp", _artemis, "PORT", "core", added=ARTEMIS_STOMP, **_STOMP),
    Pair(
        *("artemis-core", _artemis, "PORT", "core", _ALL),
        (*ALL_TYPES, "NullObject"),
        added=ARTEMIS_ORIGINS,
    ),
    Pair(
        *("artemis-artemis", _artemis, "PORT", "core", ("rollback", "reject"), ALL_TYPES),
        added=ARTEMIS_ORIGINS,
        provider_of_payments="qpid",
    ),
    Pair("classic5-openwire", _classic(CLASSIC_5), "OPENWIRE_PORT", "openwire", _ALL, ALL_TYPES),
    Pair(
        *("classic5-amqp", _classic(CLASSIC_5), "AMQP_JMS_PORT", "openwire", _ALL),
        _WHOLE_OVER_AMQP,
        added=MAPPED,
    ),
    Pair("classic5-stomp", _classic(CLASSIC_5), "STOMP_PORT", "openwire", **_CLASSIC_STOMP),
    Pair("classic6-openwire", _classic(CLASSIC_6), "OPENWIRE_PORT", "openwire", _ALL, ALL_TYPES),
    Pair(
        *("classic6-amqp", _classic(CLASSIC_6), "AMQP_PORT", "qpid", ("rollback", "reject")),
        ALL_TYPES,
        ("intake.producers=amqp",),
    ),
    Pair("classic6-stomp", _classic(CLASSIC_6), "STOMP_PORT", "openwire", **_CLASSIC_STOMP),
    Pair(
        *("artemis-shared-amqp", _artemis, "PORT", "qpid", ("rollback", "reject"), ALL_TYPES),
        sidecars=3,
    ),
    Pair(
        *("artemis-held-amqp", _artemis, "PORT", "qpid", ("rollback", "reject"), ALL_TYPES),
        is_held=True,
    ),
    Pair(
        *("classic6-shared-openwire", _classic(CLASSIC_6), "OPENWIRE_PORT", "openwire", _ALL),
        ALL_TYPES,
        sidecars=3,
    ),
)
