"""The link to Apache Artemis over STOMP 1.2: exactly once although an ACK knows no transaction.

An ACK in a STOMP transaction acts at once on Artemis and is not undone. So a cycle is:

1. BEGIN, all SENDs, SEND of token k, COMMIT, and its receipt;
2. only then ACK of token k-1 and of every dead letter, and the receipt of the last one.

Token k names the dead letters that cycle k accepts by the numbers that the broker gave them, which
no producer can forge and which stay while they are in their queue. If something ends in between:

- before the commit: the broker undoes the transaction with the connection, and gives token k-1 and
  the dead letters back;
- between the commit and the last ACK (crash point `accepting`): the heir finds tokens k-1 and k,
  removes the first, and acknowledges the dead letters that k names when they come again, without
  handing them over. A later token goes on naming each until it comes, or is known to be gone;
- a broker that is killed there: commit and ACKs go through one journal in order, and an ACK is
  answered once it is written. Answered ACKs are durable; token k names the other dead letters;
- an ACK of cycle k is answered before cycle k+1 is committed, so a token needs no older names.

Two windows remain: a named dead letter that is moved before it comes again (by its expiry, an
operator, or the broker after too many failed deliveries) has a new number, and is a copy there;
and another sidecar that reads the same dead-letter queue doesn't know the names.

Four connections, since the broker ends a connection with each ERROR: the token's, which carries
the transactions, so that the token fences them; the dead letters', which therefore stay in hand
when a send is refused; the management's; and one that hears of new queues.
"""

from amqsidecar.broker import MoveSession
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.stomp_artemis.look import StompArtemisLook
from amqsidecar.brokers.stomp_artemis.take import StompArtemisTake
from amqsidecar.engine.broker_held_queues import refuse_to_move


class StompArtemisLink:
    """Opens STOMP connections to one Artemis broker; see `Link` of the broker contract."""

    def __init__(self, settings: ArtemisLinkSettings) -> None:
        self._settings = settings

    def look(self) -> StompArtemisLook:
        return StompArtemisLook(self._settings)

    def take(self, token_queue: str) -> StompArtemisTake:
        return StompArtemisTake(self._settings, token_queue)

    def move(self) -> MoveSession:
        """Refuse: over STOMP Artemis can't move waiting messages in one transaction."""
        refuse_to_move(self)
