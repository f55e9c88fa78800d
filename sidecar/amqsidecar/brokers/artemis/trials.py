"""The doctor's questions to the management of Artemis, over any wire."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from amqsidecar.brokers.artemis.management import (
    ArtemisQuestions,
    ManagementQuestion,
    QueueRow,
    attribute_of_queue,
)
from amqsidecar.brokers.artemis.resend_effects import resend_effects
from amqsidecar.brokers.artemis.routes import all_diverts, is_wildcard_match
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.send_terms import SideEffect
from amqsidecar.trials import BrokerDisk, TrialFeatures

EMPTIED = (
    "it is empty now, and goes only where auto-delete-queues is on (artemis create writes false); "
    "a user with the manage permission removes it at once"
)

_DISK_FULL = re.compile(r"AMQ229119: .*Usage rate is ([0-9.]+)%")


class ArtemisTrials(ABC):
    """Trials, of which most need no more than answers of the management."""

    def __init__(self, management: ArtemisQuestions) -> None:
        self._management: ArtemisQuestions = management

    @property
    def features(self) -> TrialFeatures:
        return TrialFeatures(roles=self, effects=self, disk=self, acceptors=self)

    def refusals(self) -> tuple[str, ...]:
        return self._management.refusals

    @abstractmethod
    def _empty(self, destination: Destination) -> str | None:
        """Remove or empty a queue of ours without the management; see `Trials.remove`."""

    def remove(self, destination: Destination) -> str | None:
        return self._destroy(destination) if self.can_remove else self._empty(destination)

    @property
    def can_remove(self) -> bool:
        return self._management.is_usable

    def _destroy(self, destination: Destination) -> str | None:
        """Remove a queue and its address; return the broker's words why they can't be removed."""
        arguments = (destination.name, True, True)
        answer = self._management.ask(ManagementQuestion("broker", "destroyQueue", arguments))
        if not answer.is_ok:
            return str(answer.value)
        # Quirk (Artemis 2.55): the address stays at times, although it is empty and was asked for.
        # Where it is gone already, the broker refuses, and nothing is left to do.
        self._management.ask(ManagementQuestion("broker", "deleteAddress", (destination.name,)))
        return None

    def broker_ms(self) -> int | None:
        answer = self._management.ask(ManagementQuestion("broker", "listConnectionsAsJSON"))
        entries = json.loads(answer.value) if answer.is_ok else []
        # Why the latest: it is our connection, or a newer one.
        return max((int(entry["creationTime"]) for entry in entries), default=None)

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        """Return the same: names are no wildcards here."""
        return tuple(queues)

    def is_purged(self, destination: Destination) -> bool:
        answer = self._management.ask(attribute_of_queue(destination, "PurgeOnNoConsumers"))
        return answer.is_ok and answer.value is True

    def disk(self) -> BrokerDisk | None:
        used, limit = self._management.ask_all(
            [
                ManagementQuestion("broker", attribute="DiskStoreUsage"),
                ManagementQuestion("broker", attribute="MaxDiskUsage"),
            ]
        )
        if used.is_ok and limit.is_ok:
            is_limited = 0 < limit.value < 100
            return BrokerDisk(float(used.value), limit.value / 100) if is_limited else None
        # Why: over STOMP the question itself is blocked, with these words.
        words = _DISK_FULL.search(str(used.value))
        return None if words is None else BrokerDisk(float(words[1]) / 100, None)

    def acceptors_of(self, protocol: str) -> tuple[str, ...]:
        """Return the names of the acceptors that take clients of a protocol, such as `STOMP`.

        () = none, or not known. An acceptor without `protocols` takes every protocol that the
        broker has (`NettyAcceptor`, `TransportConstants.PROTOCOLS_PROP_NAME`).
        """
        answer = self._management.ask(ManagementQuestion("broker", "getAcceptorsAsJSON"))
        acceptors = json.loads(answer.value) if answer.is_ok else []
        return tuple(
            acceptor["name"]
            for acceptor in acceptors
            if protocol in str(acceptor["params"].get("protocols", protocol)).upper().split(",")
        )

    def addresses(self) -> tuple[str, ...]:
        return tuple(self._management.address_names())

    def resend_effects(
        self, settings_of: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Sequence[SideEffect]]:
        management = self._management
        management.demand()
        queues: dict[str, list[QueueRow]] = {}
        for row in management.queues():
            queues.setdefault(row.address, []).append(row)
        diverts = all_diverts(management)
        return {
            name: [
                *resend_effects(
                    name,
                    queues.get(name, ()),
                    [divert for match, divert in diverts if is_wildcard_match(match, name)],
                    settings,
                )
            ]
            for name, settings in settings_of.items()
        }

    def roles(self, address: str) -> tuple[Mapping[str, Any], ...]:
        answer = self._management.ask(ManagementQuestion("broker", "getRolesAsJSON", (address,)))
        return tuple(json.loads(answer.value)) if answer.is_ok else ()


class Meeting(NamedTuple):
    """The broker's clock at the moment when it accepted our connection.

    Attributes:
        broker_ms: the broker's clock.
        began_ms: our clock before.
        began_s: our monotonic clock before.
    """

    broker_ms: int
    began_ms: int
    began_s: float

    def ahead_ms(self, clock: Clock) -> int:
        """Return by how much the broker's clock is ahead of ours at most; negative = behind."""
        now_ms = clock.now_ms()
        # Why the longer: our clock may have been set back, or the machine may have slept.
        passed_ms = max(now_ms - self.began_ms, int((clock.monotonic_s() - self.began_s) * 1000))
        # Why at most: the broker took our connection some time after we began.
        return self.broker_ms + passed_ms - now_ms


def meeting(management: ArtemisQuestions, client_id: str, began_ms: int, began_s: float) -> Meeting:
    """Return the broker's clock at the moment when it accepted a client's connection.

    Raises:
        BrokerRefused: the broker does not report its time to this user.
    """
    broker_ms = _connected_ms(management, client_id)
    if broker_ms is None:
        reason = management.why_unusable or "it does not report its time"
        raise BrokerRefused(
            "with store.url broker: the broker must report its time, and settings of queues with "
            f"waiting messages: {reason}"
        )
    return Meeting(broker_ms, began_ms, began_s)


def _connected_ms(management: ArtemisQuestions, client_id: str) -> int | None:
    """Return the broker's clock when it took a client's connection; None = not reported."""
    named = {"field": "CLIENT_ID", "operation": "EQUALS", "value": client_id}
    found, times = management.ask_all(
        [
            ManagementQuestion("broker", "listConnections", (json.dumps(named), 1, 1)),
            ManagementQuestion("broker", "listConnectionsAsJSON"),
        ]
    )
    if not (found.is_ok and times.is_ok):
        return None
    ids = [entry["connectionID"] for entry in json.loads(found.value)["data"]]
    entries = json.loads(times.value)
    told = [int(one["creationTime"]) for one in entries if one["connectionID"] in ids]
    return told[0] if told else None
