"""Tries on Artemis what the sidecar's user may do, without taking or leaving anything."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from amqsidecar.brokers.amqp_connection import AmqpConnection
from amqsidecar.brokers.amqp_links import Receiver, Sender
from amqsidecar.brokers.artemis_management import ArtemisManagement, Question
from amqsidecar.model.destination import Destination


class ArtemisTrials:
    """Trials over one AMQP connection."""

    def __init__(
        self,
        connection: AmqpConnection,
        management: ArtemisManagement,
        timeout_s: float,
    ) -> None:
        self._connection = connection
        self._management = management
        self._timeout_s = timeout_s
        self._numbers = count(1)

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The link gives no credit. The broker makes a queue that is missing where it may.
        """
        receiver = Receiver(
            self._connection,
            f"amqsidecar-trial-{id(self)}-{next(self._numbers)}",
            destination.name,
            capability=None if "::" in destination.name else "queue",
        )
        return self._answer(receiver, lambda: receiver.is_open)

    def write(self, destination: Destination) -> str | None:
        """Return the broker's words why nothing can be sent there; None = it can.

        Nothing is sent. The broker makes a queue that is missing where it may.
        """
        sender = Sender(
            self._connection,
            f"amqsidecar-trial-{id(self)}-{next(self._numbers)}",
            destination.name,
            capability="queue" if destination.is_queue else "topic",
        )
        return self._answer(sender, lambda: sender.credit > 0)

    def _answer(self, link: Receiver | Sender, is_agreed: Callable[[], bool]) -> str | None:
        self._connection.run_until(lambda: is_agreed() or link.refusal is not None, self._timeout_s)
        words = link.refusal
        if words is None and not is_agreed():
            words = f"no answer in {self._timeout_s:g} s"
        link.close()
        self._connection.run_until(lambda: link.is_closed, self._timeout_s)
        link.forget()
        return words

    def remove(self, destination: Destination) -> str | None:
        """Remove a queue with all that is in it; return the broker's words why it can't be."""
        arguments = (destination.name, True, True)
        answer = self._management.ask(Question("broker", "destroyQueue", arguments))
        return None if answer.is_ok else str(answer.value)

    def broker_ms(self) -> int | None:
        """Return the broker's clock at a moment since we connected; None = it can't be asked."""
        answer = self._management.ask(Question("broker", "listConnectionsAsJSON"))
        entries = json.loads(answer.value) if answer.is_ok else []
        # Why the latest: it is ours, or was made after ours.
        return max((int(entry["creationTime"]) for entry in entries), default=None)

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        """Return the same: names are no wildcards here."""
        return tuple(queues)

    def is_purged(self, destination: Destination) -> bool:
        """Tell whether the broker empties a queue when its last reader leaves; False = not known.

        Such a queue must not be tried to read.
        """
        name = destination.name.rpartition("::")[2]
        answer = self._management.ask(Question(f"queue.{name}", attribute="PurgeOnNoConsumers"))
        return answer.is_ok and answer.value is True

    def refusals(self) -> tuple[str, ...]:
        """Return the broker's words why it can't be asked; () = it can."""
        return self._management.refusals

    def addresses(self) -> tuple[str, ...]:
        """Return the names of all addresses; () = it can't be asked."""
        return tuple(self._management.address_names())

    def roles(self, address: str) -> tuple[Mapping[str, Any], ...]:
        """Return who may do what on an address, as `getRolesAsJSON` tells; () = not asked."""
        answer = self._management.ask(Question("broker", "getRolesAsJSON", (address,)))
        return tuple(json.loads(answer.value)) if answer.is_ok else ()
