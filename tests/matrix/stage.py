"""Where the matrix is played: brokers, the wires of the sidecar, the clients."""

from dataclasses import dataclass
from pathlib import Path

from matrix.applications import USER
from support.brokers.broker_xml import STOCK_ADDRESSES, STOCK_MANAGEMENT_ADDRESS_SETTING
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.versions import CLASSIC_5, CLASSIC_6, TESTED

SIDECAR = "sidecar"
KINDS = {"classic_5": CLASSIC_5, "classic_6": CLASSIC_6, "artemis": "artemis"}


@dataclass(frozen=True)
class Wire:
    """A way in which the sidecar attaches.

    Attributes:
        name: as the matrix names it.
        url: attribute of the broker that is the URL.
        options: of the sidecar, beside its intake.
        after: the wire of which it takes what that one refused; "" = it has its own messages.
        individual: whether each queue has a dead-letter queue of its own (Classic).
        counts_all: whether as much as was sent is counted. Classic over AMQP: not what the broker
            can't show over AMQP. Artemis over AMQP: more, since the broker copies what it can't
            show an application over AMQP.
    """

    name: str
    url: str
    options: tuple[str, ...] = ()
    after: str = ""
    individual: bool = False
    counts_all: bool = True

    @property
    def protocol(self) -> str:
        """What the broker must speak for it."""
        protocol = self.url.partition("_")[0]
        return "core" if protocol == "pair" else protocol

    @property
    def prefix(self) -> str:
        """What the names of its queues begin with."""
        return f"matrix.{self.after or self.name}."

    @property
    def dead_letters(self) -> str:
        """What the name of its shared dead-letter queue ends with."""
        return self.after or self.name


_ALL_LOSSES = "intake.allow_lossy=[body_type, property_types, group]"
CLASSIC_WIRES = (
    Wire("openwire", "openwire_url"),
    Wire("amqp", "amqp_url", ("intake.producers=amqp",), individual=True, counts_all=False),
    Wire("amqp-jms", "amqp_jms_url", individual=True, counts_all=False),
    Wire("stomp", "stomp_url"),
    Wire("stomp-lossy", "stomp_url", (_ALL_LOSSES,), after="stomp", counts_all=False),
)
ARTEMIS_WIRES = (
    Wire("artemis", "pair_url"),
    Wire("amqp", "amqp_url", counts_all=False),
    Wire("stomp", "stomp_url"),
)
CLASSIC_CLIENTS = ("openwire", "qpid", "qpid-jms", "stomp")
ARTEMIS_CLIENTS = ("core", "qpid", "openwire", "stomp")


def wires_of(kind: str) -> tuple[Wire, ...]:
    """Return the wires that a broker has and the release that is tested speaks."""
    wires = ARTEMIS_WIRES if kind == "artemis" else CLASSIC_WIRES
    return tuple(one for one in wires if one.protocol in TESTED[kind].wires)


def clients_of(kind: str) -> tuple[str, ...]:
    """Return the clients that applications use with a broker."""
    return ARTEMIS_CLIENTS if kind == "artemis" else CLASSIC_CLIENTS


_USERS = f"""
<simpleAuthenticationPlugin>
  <users>
    <authenticationUser username="{USER}" password="{USER}" groups="admins,users"/>
    <authenticationUser username="{SIDECAR}" password="{SIDECAR}" groups="admins,users"/>
  </users>
</simpleAuthenticationPlugin>
"""


def _entry(wire: Wire) -> str:
    strategy = (
        '<individualDeadLetterStrategy queuePrefix="DLQ." processNonPersistent="true"/>'
        if wire.individual
        else '<sharedDeadLetterStrategy processNonPersistent="true"><deadLetterQueue>'
        f'<queue physicalName="DLQ.{wire.name}"/></deadLetterQueue></sharedDeadLetterStrategy>'
    )
    return (
        f'<policyEntry queue="{wire.prefix}>"><deadLetterStrategy>{strategy}'
        "</deadLetterStrategy></policyEntry>"
    )


def _setting(wire: Wire) -> str:
    return f"""
<address-setting match="{wire.prefix}#">
  <dead-letter-address>DLQ.{wire.name}</dead-letter-address>
  <max-delivery-attempts>1</max-delivery-attempts>
  <auto-delete-queues>false</auto-delete-queues>
  <auto-delete-addresses>false</auto-delete-addresses>
</address-setting>
<address-setting match="DLQ.{wire.name}">
  <dead-letter-address>DLQ.{wire.name}</dead-letter-address>
  <max-delivery-attempts>-1</max-delivery-attempts>
  <management-browse-page-size>100000</management-browse-page-size>
</address-setting>
"""


class MatrixArtemis(ArtemisBroker):
    """Artemis with a user for the applications and one for the sidecar."""

    user = password = SIDECAR

    def _prepare(self) -> None:
        super()._prepare()
        etc = self.config_path.parent
        (etc / "artemis-users.properties").write_text(f"{USER}={USER}\n{SIDECAR}={SIDECAR}\n")
        (etc / "artemis-roles.properties").write_text(f"amq={USER},{SIDECAR}\n")


class MatrixClassic(ClassicBroker):
    """Classic with a user for the applications and one for the sidecar."""

    user = password = SIDECAR


def matrix_broker(kind: str) -> Broker:
    """Return a broker that gives up at the first failure and names each message's user."""
    wires = [wire for wire in wires_of(kind) if not wire.after]
    if kind == "artemis":
        dlqs = "".join(
            f'<address name="DLQ.{wire.name}"><anycast><queue name="DLQ.{wire.name}"/></anycast>'
            "</address>"
            for wire in wires
        )
        return MatrixArtemis(
            address_settings=STOCK_MANAGEMENT_ADDRESS_SETTING + "".join(map(_setting, wires)),
            addresses=STOCK_ADDRESSES + dlqs,
            core="<populate-validated-user>true</populate-validated-user>",
        )
    return MatrixClassic(
        KINDS[kind],
        plugins=_USERS,
        destination_policy="".join(map(_entry, wires)),
        broker_attributes='populateJMSXUserID="true"',
    )


def _policy_entry(wire: Wire) -> str:
    """Return what `_entry` says, for the sidecar."""
    strategy = (
        "kind: individual\n        queue_prefix: DLQ."
        if wire.individual
        else f"kind: shared\n        dead_letter_queue: queue://DLQ.{wire.name}"
    )
    return (
        f'    - queue: "{wire.prefix}>"\n      dead_letter_strategy:\n        {strategy}\n'
        "        process_non_persistent: true\n"
    )


def policy(kind: str, folder: Path) -> Path:
    """Write the rules that the sidecar goes by: five redeliveries, each at once."""
    path = folder / "policy.yaml"
    if kind == "artemis":
        text = 'address_settings:\n  - match: "#"\n    max_delivery_attempts: 6\n'
    else:
        entries = "".join(_policy_entry(wire) for wire in wires_of(kind) if not wire.after)
        text = (
            "plugins:\n  - redelivery:\n      default_entry:\n        maximum_redeliveries: 5\n"
            "        initial_redelivery_delay_ms: 0\n        redelivery_delay_ms: 0\n"
        )
        text += f"dead_letter:\n  entries:\n{entries}"
    path.write_text(text, encoding="utf-8")
    return path
