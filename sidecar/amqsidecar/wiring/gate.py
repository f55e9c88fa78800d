"""Read-only connections for people: the send gate, and messages in final queues."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import msgspec

from amqsidecar.broker import LookSession
from amqsidecar.config.schema import Config
from amqsidecar.engine.intake import IntakeNames, named_queues
from amqsidecar.engine.send_gate import GateAnswer, SendGate
from amqsidecar.errors import DiscoveryRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.schedule import RowView
from amqsidecar.operations.lying import LyingMessage, ReadLying, read_lying
from amqsidecar.operations.preview import AskGate
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.runtime.discovery import Discovery
from amqsidecar.wiring.rules import send_rules

OpenLookSession = Callable[[str], LookSession]
"""Opens a session of this instance at the broker that is in use now; raises as `Link.look`."""


def lying_reader(open_look: OpenLookSession) -> ReadLying:
    """Return the reader of messages in final queues; each call has a connection of its own."""

    def read(row: RowView) -> LyingMessage:
        with closing(open_look(f"look-{secrets.token_hex(4)}")) as link:
            return read_lying(link, row)

    return read


@contextmanager
def opened_gate(config: Config, open_look: OpenLookSession, rules: object) -> Iterator[AskGate]:
    """Ask the broker over a connection of its own, which takes and sends nothing.

    Raises:
        LinkLost: the broker can't be reached.
        BrokerRefused: it refuses the user.
    """
    classic = rules if isinstance(rules, ClassicRules) else None
    with closing(open_look(f"preview-{secrets.token_hex(4)}")) as link:
        names = IntakeNames(link.description.kind)
        queues = named_queues(config.intake.queues)
        if not queues:
            try:
                queues = tuple(Discovery(classic, is_silent=True).find(link))
            except DiscoveryRefused:
                queues = ()
        names.replace(queues)
        gate = SendGate(link, send_rules(config, classic, names))
        existing = _existing(link)

        def ask(destination: Destination) -> GateAnswer:
            answer = gate.ask(destination)
            if existing is None or not destination.is_queue:
                return answer
            exists = destination.name in existing
            terms = msgspec.structs.replace(answer.terms, exists=exists)
            return msgspec.structs.replace(answer, terms=terms)

        yield ask


def _existing(link: LookSession) -> frozenset[str] | None:
    """Return the queues of a Classic, which makes a missing one at the first send; None = unknown.

    Why not in `send_terms`: only a person can have misspelled a name.
    """
    listing = link.features.listing
    try:
        return None if listing is None else frozenset(listing.queue_names())
    except DiscoveryRefused:
        return None
